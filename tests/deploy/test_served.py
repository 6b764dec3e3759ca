"""Every value that a server reads arrives at it, as the inventory says it."""

from __future__ import annotations

import pytest

from deploy.states import inventory
from kakeya_ops.deploy.served import LEFT_OUT, PEERS, SECTIONS, read_served_host, served_inventory
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory
from kakeya_ops.inventory.sections import Host

RICH = """
fleet: {name: pair, tenant: ours, key_file: ~/keys/fleet.key}
model: {id: model, path: ~/models/m, sync: true}
cache: {sink: 8, window: 4096, block_tokens: 128, pool_gb: 2.5, replicas: 2}
prefill: {min_tokens: 77, policy: prefer_remote, parity: exact, require_remote: true}
model_serving: {context: 4242, concurrency: 3}
defaults:
  ssh: {user: fluffy, port: 2222}
  install_root: /opt/kakeya
  python: /opt/python
  domain: user
  prevent_sleep: true
  announce: true
  queue: 9
  environment: {TZ: UTC}
hosts:
  head:
    role: head
    memory_gb: 24
    pool_gb: 7.5
    api: {bind: 0.0.0.0, port: 8888, keys_file: ~/keys/api}
    endpoints: [{network: bolt, address: 169.254.1.1, port: 5001, priority: 7, trusted: true}]
  allens:
    role: worker
    queue: 4
    endpoints: [{network: bolt, address: 169.254.1.2, port: 5002, priority: 9, trusted: true}]
"""
SERVED = set(Host.model_fields) - set(LEFT_OUT)


def served(name: str, text: str = RICH) -> Inventory:
    return parse_inventory(served_inventory(parse_inventory(text.encode(), "x"), inventory_host(text, name)), "copy")


def inventory_host(text: str, name: str) -> ResolvedHost:
    return parse_inventory(text.encode(), "x").host(name)


@pytest.mark.parametrize("name", ["head", "allens"])
def test_the_copy_says_what_the_inventory_says(name: str) -> None:
    whole, copy = parse_inventory(RICH.encode(), "x"), served(name)
    for section in SECTIONS:
        assert getattr(copy, section) == getattr(whole, section), section
    for field in SERVED:
        assert getattr(copy.host(name), field) == getattr(whole.host(name), field), field
    for other in whole.hosts:
        for field in PEERS:
            assert getattr(copy.host(other), field) == getattr(whole.host(other), field), field


def test_every_section_and_every_key_is_served_or_left_out_for_a_reason() -> None:
    assert set(Inventory.model_fields) == {*SECTIONS, "hosts", "defaults", "groups"}
    assert set(LEFT_OUT) <= set(Host.model_fields)
    known = {"role", "memory_gb", "pool_gb", "api", "endpoints", "announce", "queue"}
    assert known == SERVED, "a new key: does a server read it? Then it is here, else in LEFT_OUT"


def test_what_only_deploy_reads_is_not_in_the_copy() -> None:
    text = served_inventory(parse_inventory(RICH.encode(), "x"), inventory_host(RICH, "allens")).decode()
    for word in ("fluffy", "2222", "/opt/kakeya", "/opt/python", "UTC"):
        assert word not in text


def test_the_host_of_a_copy_can_be_read_again() -> None:
    fleet = inventory()
    host = fleet.host("allens")
    found = read_served_host(served_inventory(fleet, host), "allens")
    assert found is not None
    assert found.endpoints == host.endpoints
    assert read_served_host(None, "allens") is None
    assert read_served_host(b"{", "allens") is None
    assert read_served_host(served_inventory(fleet, host), "nobody") is None
