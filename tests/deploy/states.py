"""Hosts as they may be observed, and what a machine may contribute, made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.desired import Desired, make_desired
from kakeya_ops.deploy.material import Material
from kakeya_ops.deploy.plan import Planner
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory
from kakeya_ops.launchd import Domain, ServiceState
from kakeya_ops.memory.facts import pinned
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import Health, HostState, Job, KeyFile, Python, Unknown
from kakeya_ops.secret import Secret
from kakeya_ops.wire.cards import Card, Load, PoolUse
from serving.running import simple_identity

KEY = Secret(bytes(range(32)))
UID = 501
GUI, USER = Domain("gui", UID), Domain("user", UID)
HOME = "/Users/fluffy"
PLANNER_INVENTORY = """
fleet: {name: pair}
model: {path: ~/models/tiny}
hosts:
  head:
    role: head
    api: {bind: 127.0.0.1, port: 8080}
    endpoints: [{network: lan, address: 127.0.0.1, port: 51051}]
  allens:
    role: worker
    endpoints: [{network: lan, address: 127.0.0.1, port: 53051}]
  boris:
    role: worker
    endpoints: [{network: lan, address: 127.0.0.1, port: 53052}]
  vault:
    role: cache
    endpoints: [{network: lan, address: 127.0.0.1, port: 53053}]
groups: {workers: [allens, boris]}
"""


@dataclass(frozen=True)
class Noted:
    """A step that notes that it was done."""

    title: str

    def apply(self, context: HostContext) -> None:
        context.tell(self.title)


@dataclass(frozen=True)
class FakeProgram:
    id: str = "p1"

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        return () if self.id in state.programs else (Noted("install the program"),)


@dataclass(frozen=True)
class FakeModel:
    lacking: bool = False

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        return (Noted("sync the model"),) if self.lacking else ()

    def after(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        return (Noted("forget"),) if tuple(steps) else ()


def inventory(text: str = PLANNER_INVENTORY) -> Inventory:
    return parse_inventory(text.encode(), "inventory.yaml")


def material(**changes: Any) -> Material:
    made = Material(KEY, simple_identity(), FakeProgram(), FakeModel())
    return dataclasses.replace(made, **changes)


def planner(**changes: Any) -> Planner:
    return dataclasses.replace(Planner(inventory(), material()), **changes)


def card(node: str, planned: Any = None, **changes: Any) -> Card:
    """The card of a healthy node with the planned identity, or another."""
    planned = planned or simple_identity()
    values: dict[str, Any] = {
        "node": node,
        "role": "worker",
        "epoch": 1,
        "instance": "ab" * 16,
        "version": "1",
        "endpoints": (),
        "identity": planned.digest,
        "identity_document": planned.to_json(),
        "runtime": None,
        "load": Load(queued=0, running=0, queue_seconds=0.0),
        "prefill_tokens_per_second": None,
        "free_memory_bytes": 1,
        "pool": PoolUse(used_bytes=0, budget_bytes=1),
        "counters": {},
        "issued_at": 1.0,
        "ttl_seconds": 15.0,
        "healthy": True,
    }
    return Card(**(values | changes))


def bare(name: str, **changes: Any) -> HostState:
    """A Mac on which nothing is installed and whose user is at the screen."""
    state = HostState(
        host=name,
        user="fluffy",
        uid=UID,
        home=HOME,
        domains=(GUI, USER),
        macos="15.5",
        chip="Apple M4",
        memory=pinned(16),
        disk_free_bytes=100 * 2**30,
        python=Python("/opt/homebrew/bin/python3.12", (3, 12)),
        console_uid=UID,
        jobs=(),
        disabled=False,
        plist=None,
        generation=None,
        previous=None,
        served=None,
        programs=frozenset(),
        key=None,
        identity=None,
        model=None,
        lock=None,
        health=None,
        card=Unknown("nothing answers"),
    )
    return dataclasses.replace(state, **changes)


def job(desired: Desired, domain: Domain = GUI, arguments: tuple[str, ...] | None = None, pid: int = 42) -> Job:
    """The job of `desired`, running."""
    shown = desired.service.program_arguments if arguments is None else arguments
    text = "\n".join(f"\t\t{argument}" for argument in shown)
    return Job(domain, ServiceState(state="running", pid=pid, program_arguments=shown, arguments_text=text))


def desired(plan: Planner, name: str, **changes: Any) -> Desired:
    """What the host shall be."""
    return make_desired(plan.inventory, plan.inventory.host(name), bare(name, **changes), plan.material)


def settled(plan: Planner, name: str, **changes: Any) -> HostState:
    """A host that is what it shall be."""
    wanted = desired(plan, name)
    state = bare(
        name,
        jobs=(job(wanted),),
        plist=wanted.plist,
        generation=wanted.generation,
        programs=frozenset({plan.material.program.id}),
        key=KeyFile(0o600, plan.material.key_digest or ""),
        identity=plan.material.identity_document,
        health=Health(True),
        card=card(name),
    )
    return dataclasses.replace(state, **changes)
