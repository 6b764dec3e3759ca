"""The status of a fleet as plain values. What is not known is None, and a sentence beside it says why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kakeya_ops.serving.counters import CounterName
from kakeya_ops.wire.cards import Role

State = Literal["healthy", "failing", "unreachable", "asking"]
"""`asking`: no answer yet, and none was due yet."""
Number = int | float

TOTALS: tuple[CounterName, ...] = (
    CounterName.REMOTE_JOBS,
    CounterName.REMOTE_HITS,
    CounterName.REMOTE_JOB_FAILURES,
    CounterName.FALLBACKS,
    CounterName.TOKENS_REUSED,
    CounterName.TOKENS_COMPUTED_LOCAL,
    CounterName.TOKENS_COMPUTED_REMOTE,
    CounterName.BYTES_RECEIVED,
    CounterName.BYTES_PUBLISHED,
    CounterName.IMPORT_SECONDS,
    CounterName.TRANSFER_SECONDS,
    CounterName.LOCAL_HITS,
    CounterName.EVICTIONS,
)
"""The counters of heads that are added up for the fleet."""


@dataclass(frozen=True)
class Service:
    """What launchd says of the node's service: ``running``, another word of launchd's, or why there is none."""

    state: str
    pid: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Identity:
    """The node's cache identity against that of a head.

    `equal` is None where one of the two is not known, and for a head that others are compared with.
    """

    digest: str | None = None
    head: str | None = None
    equal: bool | None = None
    difference: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Reach:
    """The ways between a head and another node, as their running processes see them.

    `to_node` is the head's link, with the endpoint in use and its `security`, ``tls`` or ``clear``. `to_head` is what
    the node's own process says of the way back, None where it does not.
    """

    head: str
    to_node: bool
    to_head: bool | None
    network: str | None = None
    address: str | None = None
    port: int | None = None
    rtt_seconds: float | None = None
    bytes_per_second: float | None = None
    error: str | None = None
    security: str | None = None

    @property
    def one_way(self) -> bool:
        """Whether exactly one direction is known to work."""
        return self.to_head is not None and self.to_head != self.to_node


@dataclass(frozen=True)
class Memory:
    """What the node's process takes by its system's count, what its engine took at most, and what was forecast.

    The forecast is of the whole process at its fullest load, except that the pool is reckoned as full as it is now.
    """

    footprint_bytes: int | None = None
    engine_peak_bytes: int | None = None
    forecast_bytes: int | None = None


@dataclass(frozen=True)
class CardFacts:
    """What the node's card says. `age_seconds` is how long ago it did, `told_by` who passed it on if not itself.

    Counters belong to one process: that of `epoch` and `instance`.
    """

    epoch: int
    instance: str
    version: str
    uptime_seconds: float
    age_seconds: float
    stale: bool
    told_by: str | None
    queued: int
    running: int
    jobs_done: int | None
    prefill_tokens_per_second: float | None
    pool_used_bytes: int
    pool_budget_bytes: int
    free_memory_bytes: int
    counters: Mapping[str, Number]


@dataclass(frozen=True)
class NodeStatus:
    """One host of the inventory, and the node on it.

    `serves` is whether it does what it is there for, None where that is not known: a worker or a cache also needs a
    head that can use it. Unless it is True, `problems` say why. `notes` are worth knowing and change nothing.
    `prefill_now_tokens_per_second` is measured between two cards of one process, and None before there are
    two; `prefill_history` are its last values of that process, the newest last.
    """

    node: str
    role: Role
    state: State
    serves: bool | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    service: Service
    model: str | None
    identity: Identity
    reaches: tuple[Reach, ...]
    card: CardFacts | None
    memory: Memory = Memory()
    prefill_now_tokens_per_second: float | None = None
    prefill_history: tuple[float, ...] = ()
    restarts_seen: int = 0


@dataclass(frozen=True)
class Totals:
    """The counters of all heads that answer, added up; None where none does. Those of earlier processes are not in it.

    The two tables are known only where a head's API answered.
    """

    counters: Mapping[str, Number | None]
    fallbacks_by_reason: Mapping[str, Number] | None = None
    by_worker: Mapping[str, Mapping[str, Number]] | None = None


@dataclass(frozen=True)
class FleetStatus:
    """Every host of the inventory in its order, at the Unix time `at`."""

    fleet: str
    at: float
    nodes: tuple[NodeStatus, ...]
    totals: Totals
    conflicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def serves(self) -> bool:
        """Whether every host is known to do what it is there for."""
        return all(node.serves for node in self.nodes)

    def node(self, name: str) -> NodeStatus:
        """The node called `name`. Raises `KeyError`."""
        for node in self.nodes:
            if node.node == name:
                return node
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return {"serves": self.serves} | dataclasses.asdict(self)


__all__ = [
    "TOTALS",
    "CardFacts",
    "FleetStatus",
    "Identity",
    "Memory",
    "NodeStatus",
    "Number",
    "Reach",
    "Service",
    "State",
    "Totals",
]
