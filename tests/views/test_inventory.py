from __future__ import annotations

import io

from rich.console import Console, RenderableType

from kakeya_ops.inventory import parse_inventory
from kakeya_ops.views.inventory import host_table, hosts_table, inventory_document, validity

INVENTORY = parse_inventory(
    b"""
fleet: {name: pair, tenant: t, key_file: /k}
model: {id: tiny, path: /m}
cache: {sink: 4, window: null, block_tokens: 64, pool_gb: 2}
hosts:
  head:
    role: head
    api: {port: 8080}
    endpoints: [{network: cable, address: 10.0.0.1, port: 1, trusted: true}]
  allens:
    role: worker
    memory_gb: 64
    endpoints: [{network: wifi, address: 10.0.0.2, port: 2}]
""",
    "inventory.yaml",
)
HOSTS = [INVENTORY.host(name) for name in INVENTORY.hosts]


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_fleet_has_a_row_for_each_host_and_says_how_it_caches() -> None:
    text = shown(hosts_table(INVENTORY, HOSTS))
    rows = {words[0]: line.strip() for line in text.splitlines() if (words := line.split())}
    head, allens = rows["head"], rows["allens"]
    assert head.split()[1:3] == ["head", "ask"]
    assert "127.0.0.1:8080" in head
    assert head.endswith("10.0.0.1:1 clear")
    assert "worker" in allens
    assert allens.endswith("10.0.0.2:2 TLS")
    assert "pair: tiny" in text
    assert "blocks of 64 tokens, sink 4, window the whole context" in text


def test_one_host_is_shown_to_the_last_key() -> None:
    lines = shown(host_table(INVENTORY, INVENTORY.host("allens"))).splitlines()
    rows = {words[0]: words[1:] for line in lines if (words := line.split())}
    assert rows["name"] == ["allens"]
    assert rows["endpoints[0].network"] == ["wifi"]
    assert rows["endpoints[0].trusted"] == ["false"]


def test_the_document_holds_the_fleets_sections_and_the_resolved_hosts() -> None:
    document = inventory_document(INVENTORY, HOSTS[1:])
    assert list(document["hosts"]) == ["allens"]
    assert document["hosts"]["allens"]["pool_gb"] == document["cache"]["pool_gb"] == 2
    assert "defaults" not in document


def test_what_is_valid_names_those_who_need_certificates() -> None:
    assert shown(validity("inventory.yaml", INVENTORY)).split("\n")[:2] == [
        "inventory.yaml is valid: head (head), allens (worker)",
        "by TLS, with certificates from kakeya deploy: allens at 10.0.0.2",
    ]
