from __future__ import annotations

from collections.abc import Callable

from kakeya_ops.inventory import Inventory

Load = Callable[[str], Inventory]
Faults = Callable[[str], list[tuple[str, int | None, str]]]


def test_one_machine_may_be_several_hosts(load: Load, base: str) -> None:
    assert len(load(base).hosts) == 2


def test_two_heads_are_fine_and_none_is_a_fault(load: Load, faults: Faults, base: str) -> None:
    second = base.replace("role: worker", "role: head\n    api: {}")
    assert [host.role for host in load(second).hosts.values()] == ["head", "head"]
    none = base.replace("role: head\n    api: {port: 8080}", "role: cache")
    assert faults(none) == [("hosts", 3, "no host has the role head, so nobody would answer requests")]


def test_a_head_that_is_not_understood_is_still_a_head(faults: Faults, base: str) -> None:
    assert [path for path, _, _ in faults(base.replace("{port: 8080}", "{port: x}"))] == ["hosts.head.api.port"]


def test_no_hosts_at_all(faults: Faults) -> None:
    assert ("hosts", 3, "must not be empty") in faults("fleet: {name: a}\nmodel: {path: /m}\nhosts: {}")


def test_an_address_belongs_to_one_endpoint(faults: Faults, base: str) -> None:
    claimed = "127.0.0.1:5001 is already claimed by hosts.head.endpoints[0]"
    assert faults(base.replace("5002", "5001")) == [("hosts.worker.endpoints[0]", 10, claimed)]
    within = base.replace("port: 5001}", "port: 5001}, {network: again, address: 127.0.0.1, port: 5001}")
    assert faults(within) == [("hosts.head.endpoints[1]", 7, claimed)]
    named = base.replace("127.0.0.1, port: 5001", "MAC.local, port: 1").replace(
        "127.0.0.1, port: 5002", "mac.local, port: 1"
    )
    assert faults(named)[0][0] == "hosts.worker.endpoints[0]"


def test_an_unsigned_fleet_stays_on_loopback(load: Load, faults: Faults, base: str) -> None:
    unsigned = base.replace("{name: pair}", "{name: pair, key_file: null}")
    assert load(unsigned).fleet.key_file is None
    [(path, line, message)] = faults(unsigned.replace("127.0.0.1", "10.0.0.1"))
    assert (path, line) == ("fleet.key_file", 1)
    assert message == "must name a file: head is reached at 10.0.0.1, and an unsigned fleet is for loopback alone"
    beside = unsigned.replace("127.0.0.1", "10.0.0.1").replace("hosts:", "cach: {}\nhosts:")
    assert [path for path, _, _ in faults(beside)] == ["fleet.key_file", "cach"]


def test_groups_name_hosts_that_exist_once_each(load: Load, faults: Faults, base: str) -> None:
    assert load(base + "groups: {every: [head, worker], none: []}").groups == {"every": ("head", "worker"), "none": ()}
    assert faults(base + "groups:\n  a: [worker, worker]\n  b: [x]\n  worker: [head]\n  all: []") == [
        ("groups.a[1]", 12, "worker is listed twice"),
        ("groups.b[0]", 13, "no host is called 'x'"),
        ("groups.worker", 14, "a host has this name already; a target must mean one thing"),
        ("groups.all", 15, "'all' already means every host; choose another name"),
    ]
