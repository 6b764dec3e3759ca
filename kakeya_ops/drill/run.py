"""A drill from start to end: who is drilled, by which kinds, in which order, and that nothing is armed afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kakeya_ops.drill.asking import Inquirer
from kakeya_ops.drill.catalogue import CATALOGUE, Kind
from kakeya_ops.drill.joint import lose_one
from kakeya_ops.drill.lane import Lane, Scene
from kakeya_ops.drill.nodes import NodeDoor, Operator
from kakeya_ops.drill.report import DrillReport, Result, recount
from kakeya_ops.drill.restart import restart_head
from kakeya_ops.drill.sharing import share
from kakeya_ops.errors import PeerError, RefusedError
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.secret import Secret
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.workers import find_workers
from kakeya_ops.wire.drills import Act

_LONG = frozenset({Act.STALL, Act.LATE, Act.DIE})
"""What lasts long is begun first where several workers are drilled, so that none has to wait for it at the end."""

Tell = Callable[[str], None]
OnResult = Callable[[Result], None]


@dataclass(frozen=True)
class DrillPlan:
    """What to drill: the head's API, the fleet as the inventory tells it, and which kinds.

    `ways` are the endpoints of each node, best first; `least_tokens` is what a prompt must have for the head to ask
    anybody. Without a `worker` all that live share the kinds.
    """

    url: str
    operator: Operator
    head: str
    ways: dict[str, Sequence[Endpoint]]
    worker: str | None = None
    kinds: Sequence[Kind] = CATALOGUE
    least_tokens: int = 128
    api_key: Secret | None = None

    def door(self, node: str) -> NodeDoor:
        """The way to `node`."""
        return NodeDoor(node, self.ways.get(node, ()), self.operator)

    def scene(self, inquirer: Inquirer, worker: NodeDoor, head: NodeDoor) -> Scene:
        """Where `worker` is drilled."""
        return Scene(inquirer, worker, head, self.operator, self.ways.get(worker.node, ()))


def run_drill(plan: DrillPlan, tell: Tell, on_result: OnResult = lambda result: None) -> DrillReport:
    """Drill the fleet of `plan`; `on_result` is told of each kind as soon as it is over.

    Whatever happens, also `KeyboardInterrupt`, nothing is armed afterwards. Raises `PeerUnreachable` or `PeerTimeout`
    if the head or a worker does not answer, and `RefusedError` when there is no worker or one takes no part in drills.
    """
    with HeadClient(plan.url, plan.api_key) as client, contextlib.ExitStack() as open_doors:
        workers = _choose(client, plan.worker)
        doors = {node: plan.door(node) for node in (*workers, plan.head)}
        for door in doors.values():
            open_doors.callback(door.close)
        inquirer = Inquirer(client, plan.operator.key)
        lanes = [Lane(plan.scene(inquirer, doors[worker], doors[plan.head])) for worker in workers]
        try:
            return _Drill(plan, inquirer, lanes, doors[plan.head]).run(tell, on_result)
        finally:
            for lane in lanes:
                lane.leave()
            with contextlib.suppress(PeerError):
                doors[plan.head].disarm()


def _choose(client: HeadClient, wanted: str | None) -> list[str]:
    check, workers = find_workers(client.network()["nodes"], wanted)
    if not workers:
        raise RefusedError(f"there is no worker to drill: {check.detail}", hint="see kakeya status")
    return [str(worker["node"]) for worker in workers]


class _Drill:
    def __init__(self, plan: DrillPlan, inquirer: Inquirer, lanes: Sequence[Lane], head: NodeDoor) -> None:
        self._plan = plan
        self._inquirer = inquirer
        self._lanes = lanes
        self._head = head
        self._lock = threading.Lock()

    def run(self, tell: Tell, on_result: OnResult) -> DrillReport:
        for lane in self._lanes:
            lane.check()
        tell("sending requests that meet nothing")
        self._inquirer.size(self._lanes[0].name, self._plan.least_tokens)
        for lane in self._lanes:
            lane.measure()
        found: dict[str, Result] = {}
        for result in (*self._on_workers(tell, on_result), *self._on_all(tell, on_result)):
            found[result.kind] = result
        plan, seconds = self._plan, self._lanes[0].undisturbed_seconds
        workers = tuple(lane.name for lane in self._lanes)
        return DrillReport(plan.url, plan.head, workers, seconds, tuple(found[kind.name] for kind in plan.kinds))

    def _on_workers(self, tell: Tell, on_result: OnResult) -> list[Result]:
        """The kinds that are about one worker, shared among all of them."""
        kinds = [kind for kind in self._plan.kinds if kind.trial not in ("joint", "head")]
        if len(self._lanes) > 1:
            kinds.sort(key=_is_short)
        before = self._inquirer.fallbacks()

        def attempt(lane: Lane, kind: Kind) -> Result:
            with self._lock:
                tell(f"{kind.name}: {kind.what}")
            return lane.attempt(kind)

        results = list(_heard(share(self._lanes, kinds, attempt), on_result))
        after = self._inquirer.fallbacks()
        return recount(results, {reason: count - before.get(reason, 0) for reason, count in after.items()})

    def _on_all(self, tell: Tell, on_result: OnResult) -> list[Result]:
        """The kinds that are about the fleet, one after the other, while nothing else happens."""
        return list(_heard(self._in_turn(tell), on_result))

    def _in_turn(self, tell: Tell) -> Iterator[Result]:
        lane = self._lanes[0]
        for kind in self._plan.kinds:
            if kind.trial in ("joint", "head"):
                tell(f"{kind.name}: {kind.what}")
                result = self._lose_one(kind) if kind.trial == "joint" else self._restart(kind)
                yield replace(result, worker=lane.name)

    def _lose_one(self, kind: Kind) -> Result:
        lane = self._lanes[0]
        _, live = find_workers(self._inquirer.client.network()["nodes"])
        others = [str(node["node"]) for node in live if node["node"] != lane.name]
        with contextlib.closing(self._plan.door(others[0] if others else lane.name)) as other:
            return lose_one(kind, lane, other if others else None)

    def _restart(self, kind: Kind) -> Result:
        return restart_head(kind, self._inquirer, self._head, self._lanes[0].name)


def _heard(results: Iterator[Result], on_result: OnResult) -> Iterator[Result]:
    for result in results:
        on_result(result)
        yield result


def _is_short(kind: Kind) -> bool:
    return kind.fault is None or kind.fault.act not in _LONG


__all__ = ["DrillPlan", "run_drill"]
