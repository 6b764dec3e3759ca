"""A fleet of two whose hosts are one simulated Mac, and what is read of hosts that need none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from deploy.states import FakeModel, bare, planner, settled
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.doctor import Examination, Expected, Finding, Report
from kakeya_ops.doctor.facts import HostFacts
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.observe.interfaces import Interface
from kakeya_ops.observe.state import HostState
from kakeya_ops.remote.local_runner import LocalRunner

PAIR = """
fleet: {name: pair}
model: {path: ~/models/tiny}
hosts:
  head:
    role: head
    api: {bind: 127.0.0.1, port: 8080}
    endpoints: [{network: thunderbolt, address: 169.254.10.1, port: 51051, trusted: true}]
  allens:
    role: worker
    endpoints:
    - {network: thunderbolt, address: 169.254.10.2, port: 53051, trusted: true}
    - {network: lan, address: allens.local, port: 53051}
"""
HEALTHY = HostFacts(
    clock_ahead_seconds=0.1,
    clock_doubt_seconds=0.6,
    filevault=False,
    sleep_minutes=0,
    kept_awake=False,
    firewall=False,
    allowed=frozenset(),
    interfaces={"bridge0": Interface(1500, ("169.254.10.2",))},
    ways=(),
)


def pair() -> Inventory:
    return parse_inventory(PAIR.encode(), "inventory.yaml")


def examine(*names: str, inventory: Inventory | None = None, **expected: Any) -> Report:
    """What the doctor says of the machine itself, which is a simulated Mac, under these names."""
    inventory = inventory or pair()
    hosts = Hosts(inventory, lambda host: LocalRunner(host.name), None)
    return Examination(hosts, Expected(**({"model": FakeModel(), "key_digest": None} | expected)), None).run(names)


def found(report: Report, code: str, host: str = "allens") -> list[Finding]:
    return [finding for finding in report.findings if (finding.code, finding.host) == (code, host)]


def only(report: Report, code: str, host: str = "allens") -> Finding:
    [finding] = found(report, code, host)
    return finding


def patient(
    name: str = "allens", facts: HostFacts = HEALTHY, state: HostState | None = None, **changes: Any
) -> Patient:
    """A host of the pair that is as it shall be, but for `changes`."""
    inventory = pair()
    values: dict[str, Any] = {
        "inventory": inventory,
        "host": inventory.host(name),
        "expected": Expected(FakeModel(), None),
        "state": state or settled(planner(), name),
        "facts": facts,
    }
    return Patient(**(values | changes))


def in_fleet(**patients: Patient) -> Mapping[str, Patient]:
    return patients


__all__ = ["HEALTHY", "bare", "dataclasses", "examine", "found", "in_fleet", "only", "pair", "patient"]
