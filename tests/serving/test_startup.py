from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from kakeya_ops.certificates.places import authorities_path, certificate_path
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.secret import write_fleet_key
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.serving.server import address_of
from kakeya_ops.serving.startup import Startup, exchanging, start_up
from ports import choose_ports
from serving.running import DEADLINE_SECONDS, Served, make_cache
from trust import AUTHORITY, NOW, write_certificate


def at(port: int, address: str = "127.0.0.1", *, trusted: bool = False) -> dict[str, Any]:
    return {"network": "n", "address": address, "port": port, "trusted": trusted}


def inventory(key_file: Path | None, hosts: Mapping[str, tuple[str, list[dict[str, Any]]]]) -> Inventory:
    """An inventory with a head and `hosts`: role and endpoints by name."""
    document = {
        "fleet": {"name": "f", "key_file": str(key_file) if key_file else None},
        "model": {"path": "/m"},
        "hosts": {"head": {"role": "head", "api": {}}}
        | {name: {"role": role, "endpoints": endpoints} for name, (role, endpoints) in hosts.items()},
    }
    return parse_inventory(yaml.safe_dump(document).encode(), "test.yaml")


def close(startup: Startup) -> None:
    for listener in startup.sockets:
        listener.close()


def test_the_only_host_of_a_role_needs_no_name(tmp_path: Path) -> None:
    write_fleet_key(tmp_path / "key")
    (port,) = choose_ports(1)
    startup = start_up(inventory(tmp_path / "key", {"w": ("worker", [at(port)])}), None, "worker")
    assert (startup.settings.id, startup.settings.role, len(startup.settings.keys)) == ("w", "worker", 1)
    assert startup.addresses == f"127.0.0.1:{port}"
    assert startup.settings.endpoints[0].port == port
    close(startup)


def test_a_node_accepts_the_key_beside_its_own_while_it_is_replaced(tmp_path: Path) -> None:
    key, other = write_fleet_key(tmp_path / "key"), write_fleet_key(tmp_path / "key.also")
    (port,) = choose_ports(1)
    startup = start_up(inventory(tmp_path / "key", {"w": ("worker", [at(port)])}), "w", "worker")
    assert tuple(startup.settings.keys) == (key, other)
    close(startup)


def test_of_several_hosts_one_must_be_named(tmp_path: Path) -> None:
    write_fleet_key(tmp_path / "key")
    first, second = choose_ports(2)
    fleet = inventory(tmp_path / "key", {"a": ("worker", [at(first)]), "b": ("worker", [at(second)])})
    with pytest.raises(InputError, match="2 hosts with the role worker: a, b"):
        start_up(fleet, None, "worker")
    with pytest.raises(InputError, match="0 hosts with the role cache: none"):
        start_up(fleet, None, "cache")
    close(start_up(fleet, "b", "worker"))


def test_a_host_of_another_role_is_refused_with_what_to_run(tmp_path: Path) -> None:
    fleet = inventory(tmp_path / "key", {"a": ("worker", [at(1)])})
    with pytest.raises(InputError, match="a is a worker") as caught:
        start_up(fleet, "a", "cache")
    assert caught.value.hint == "run: kakeya serve worker a"
    with pytest.raises(InputError, match="no host"):
        start_up(fleet, "nobody", "worker")


def test_a_missing_key_is_told_before_a_port_is_taken(tmp_path: Path) -> None:
    (port,) = choose_ports(1)
    with pytest.raises(InputError, match="does not exist"):
        start_up(inventory(tmp_path / "none", {"w": ("worker", [at(port)])}), "w", "worker")
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    write_fleet_key(tmp_path / "key")
    with socket.create_server(("127.0.0.1", 0)) as other:
        fleet = inventory(tmp_path / "key", {"w": ("worker", [at(other.getsockname()[1])])})
        with pytest.raises(EnvironmentFault, match="cannot listen"):
            start_up(fleet, "w", "worker")


def test_without_a_key_a_node_serves_loopback_only(tmp_path: Path) -> None:
    (port,) = choose_ports(1)
    fleet = inventory(None, {"w": ("worker", [at(port)])})
    startup = start_up(fleet, "w", "worker")
    assert startup.settings.keys == ()
    close(startup)
    open_host = fleet.hosts["w"].model_copy(
        update={"endpoints": (fleet.hosts["w"].endpoints[0].model_copy(update={"address": "192.0.2.1"}),)}
    )
    beyond = fleet.model_copy(update={"hosts": {**fleet.hosts, "w": open_host}})
    with pytest.raises(InputError, match="without a fleet key"):
        start_up(beyond, "w", "worker")


def test_endpoints_that_may_not_carry_kv_are_not_listened_on(tmp_path: Path) -> None:
    write_fleet_key(tmp_path / "key")
    (port,) = choose_ports(1)
    both = inventory(tmp_path / "key", {"w": ("worker", [at(port), at(port, "192.0.2.1")])})
    startup = start_up(both, "w", "worker")
    assert [address_of(listener)[0] for listener in startup.sockets] == ["127.0.0.1"]
    close(startup)
    with pytest.raises(InputError, match="neither trusted nor loopback"):
        start_up(inventory(tmp_path / "key", {"w": ("worker", [at(port, "192.0.2.1")])}), "w", "worker")


def test_an_address_that_is_not_up_is_left_out_if_another_is(tmp_path: Path) -> None:
    write_fleet_key(tmp_path / "key")
    (port,) = choose_ports(1)
    cable = at(port, "192.0.2.1", trusted=True)
    startup = start_up(inventory(tmp_path / "key", {"w": ("worker", [cable, at(port)])}), "w", "worker")
    assert [address_of(listener)[0] for listener in startup.sockets] == ["127.0.0.1"]
    close(startup)
    with pytest.raises(EnvironmentFault, match="cannot listen on 192"):
        start_up(inventory(tmp_path / "key", {"w": ("worker", [cable])}), "w", "worker")


def test_cards_go_to_every_host_of_the_inventory(tmp_path: Path) -> None:
    node = make_cache("me")
    with Served(make_cache("peer")) as served:
        fleet = inventory(tmp_path / "key", {"peer": ("cache", [at(served.port)]), "me": ("cache", [at(1)])})
        with exchanging(node, fleet) as exchange:
            assert isinstance(exchange, Exchange)
            assert exchange.wait_until(lambda: node.cards.card("peer") is not None, DEADLINE_SECONDS)


def test_an_endpoint_that_nobody_may_listen_on_is_served_by_tls_where_there_is_a_certificate(tmp_path: Path) -> None:
    write_fleet_key(tmp_path / "key")
    authorities_path(tmp_path / "key").write_bytes(AUTHORITY.pem)
    write_certificate(certificate_path(tmp_path / "key"), AUTHORITY.issue("w", (), NOW))
    (port,) = choose_ports(1)
    addresses = [one.address for many in psutil.net_if_addrs().values() for one in many if one.family is socket.AF_INET]
    address = next((one for one in addresses if not is_loopback(one)), None)
    if address is None:
        pytest.skip("lacks network: this machine has no address but loopback")
    fleet = inventory(tmp_path / "key", {"w": ("worker", [at(port), at(port, address)])})
    startup = start_up(fleet, "w", "worker")
    node = make_cache("w")
    clear, tls = startup.peer_sites(make_peer_app(node), node.counters)
    assert [address_of(listener)[0] for listener in clear.sockets] == ["127.0.0.1"]
    assert [address_of(listener)[0] for listener in tls.sockets] == [address]
    assert (clear.tls, tls.tls is not None) == (None, True)
    assert [endpoint.tls for endpoint in startup.settings.endpoints] == [False, True]
    close(startup)
