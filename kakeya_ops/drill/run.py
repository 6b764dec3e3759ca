"""A drill from start to end: each kind is brought about, met by one request, undone, and judged."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kakeya_ops.drill.asking import LOCAL, Asked, Inquirer
from kakeya_ops.drill.catalogue import CATALOGUE, Kind
from kakeya_ops.drill.claims import MadeUp, make_up
from kakeya_ops.drill.nodes import NodeDoor, Operator
from kakeya_ops.drill.report import DrillReport, Result, Seen, judge
from kakeya_ops.drill.restart import restart_head
from kakeya_ops.errors import PeerError, PeerRefused, RefusedError
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.secret import Secret
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.workers import find_workers
from kakeya_ops.wire.signing import new_nonce

RECOVERY_SECONDS = 120.0
"""The longest wait until the head uses the worker again: the longest pause after failures, or a model that is loaded
anew."""
_UNDISTURBED = 3
_SLOWER = 4

OnResult = Callable[[Result], None]


@dataclass(frozen=True)
class DrillPlan:
    """What to drill: the head's API, the fleet as the inventory tells it, and which kinds.

    `ways` are the endpoints of each node, best first; `least_tokens` is what a prompt must have for the head to ask
    anybody.
    """

    url: str
    operator: Operator
    head: str
    ways: dict[str, Sequence[Endpoint]]
    worker: str | None = None
    kinds: Sequence[Kind] = CATALOGUE
    least_tokens: int = 128
    api_key: Secret | None = None


def run_drill(plan: DrillPlan, tell: Callable[[str], None], on_result: OnResult = lambda result: None) -> DrillReport:
    """Drill the fleet of `plan`; `on_result` is told of each kind as soon as it is over.

    Whatever happens, also `KeyboardInterrupt`, nothing is armed afterwards. Raises `PeerUnreachable` or `PeerTimeout`
    if the head or the worker does not answer, and `RefusedError` when there is no worker or it takes no part in drills.
    """
    with HeadClient(plan.url, plan.api_key) as client:
        inquirer = Inquirer(client, plan.operator.key)
        worker = _choose(client, plan.worker)
        doors = {node: NodeDoor(node, plan.ways.get(node, ()), plan.operator) for node in (worker, plan.head)}
        try:
            return _Drill(plan, inquirer, worker, doors).run(tell, on_result)
        finally:
            for door in doors.values():
                with contextlib.suppress(PeerError):
                    door.disarm()
                door.close()


def _choose(client: HeadClient, wanted: str | None) -> str:
    check, workers = find_workers(client.network()["nodes"], wanted)
    if not workers:
        raise RefusedError(f"there is no worker to drill: {check.detail}", hint="see kakeya status")
    return str(workers[0]["node"])


class _Drill:
    def __init__(self, plan: DrillPlan, inquirer: Inquirer, worker: str, doors: dict[str, NodeDoor]) -> None:
        self._plan = plan
        self._inquirer = inquirer
        self._worker = worker
        self._doors = doors
        self._undisturbed_seconds = 0.0
        self._payload_bytes = 0
        self._made_up: MadeUp | None = None

    def run(self, tell: Callable[[str], None], on_result: OnResult) -> DrillReport:
        self._allowed()
        tell("sending requests that meet nothing")
        self._inquirer.size(self._worker, self._plan.least_tokens)
        undisturbed = [self._undisturbed() for _ in range(_UNDISTURBED)]
        self._undisturbed_seconds = statistics.median(asked.seconds for asked in undisturbed)
        self._payload_bytes = int(undisturbed[-1].receipt["remote"]["payload_bytes"])
        results = []
        for kind in self._plan.kinds:
            tell(f"{kind.name}: {kind.what}")
            results.append(self._try(kind))
            on_result(results[-1])
        return DrillReport(self._plan.url, self._plan.head, self._worker, self._undisturbed_seconds, tuple(results))

    def _allowed(self) -> None:
        try:
            self._doors[self._worker].disarm()
        except PeerRefused as error:
            raise RefusedError(
                f"{error.message}", hint="set fleet.drill: true in the inventory and deploy it"
            ) from error

    def _undisturbed(self) -> Asked:
        asked = self._inquirer.ask(self._inquirer.body(), frozenset({"remote"}), new_nonce(), self._worker)
        if asked.receipt.get("remote") is None:
            reason = (asked.receipt.get("fallback") or asked.receipt["decision"]).get("message", "it was not asked")
            raise RefusedError(
                f"{self._worker} does not compute prefixes even undisturbed: {reason}",
                hint="run: kakeya verify remote-prefill",
            )
        return asked

    def _try(self, kind: Kind) -> Result:
        """The result of one kind, when all that it broke is whole again."""
        if kind.trial == "head":
            return restart_head(kind, self._inquirer, self._doors[self._plan.head], self._worker)
        epoch = self._inquirer.node(self._worker).get("epoch") if kind.fatal else None
        try:
            result = self._meet(kind)
        except PeerRefused as error:
            result = _without_answer(kind, "skipped" if error.code == "refused" else "failed", error)
        except PeerError as error:
            result = _without_answer(kind, "failed", error)
        if result.verdict == "skipped":
            return result
        return self._recover(result, epoch)

    def _meet(self, kind: Kind) -> Result:
        body, nonce = self._inquirer.body(), new_nonce()
        before = self._inquirer.fallbacks()
        try:
            self._bring_about(kind, nonce)
            asked = self._inquirer.ask(body, kind.modes, nonce, self._worker)
        finally:
            met = self._undo(kind)
        after = self._inquirer.fallbacks()
        local = self._inquirer.ask(body, LOCAL, new_nonce())
        counted = {reason: count - before.get(reason, 0) for reason, count in after.items()}
        seen = Seen(asked.completion.tokens, local.completion.tokens, asked.receipt, met, counted, asked.seconds)
        return judge(kind, seen, self._undisturbed_seconds)

    def _bring_about(self, kind: Kind, nonce: str) -> None:
        worker = self._doors[self._worker]
        if kind.claim is not None:
            self._made_up = make_up(worker.card(), kind.claim)
            self._doors[self._plan.head].tell(self._made_up.told)
        elif kind.fault is not None:
            # Of streams only the drill's own is spoilt; what is asked before that cannot be told apart.
            only = nonce if kind.fault.on == "prefill" else None
            worker.arm(kind.fault.model_copy(update={"nonce": only, "bytes_per_second": self._slow_rate()}))

    def _slow_rate(self) -> int:
        """Bytes a second at which a prefix takes several times as long as undisturbed."""
        return max(int(self._payload_bytes / max(_SLOWER * self._undisturbed_seconds, 1.0)), 1)

    def _undo(self, kind: Kind) -> int | None:
        """How many requests met the fault; None where that cannot be known."""
        made_up, self._made_up = self._made_up, None
        if made_up:
            self._doors[self._plan.head].tell([made_up.taken_back])
        if kind.claim is not None or kind.fatal:
            return None
        return self._doors[self._worker].disarm().met

    def _recover(self, result: Result, ended_epoch: int | None) -> Result:
        """The same result, once the head uses the worker again: another process than that of `ended_epoch`."""

        def back() -> bool:
            node = self._inquirer.node(self._worker)
            return bool(node.get("usable")) and node.get("epoch") != ended_epoch

        took = self._inquirer.wait(back, RECOVERY_SECONDS)
        if took is None:
            detail = f"{self._worker} was not used again within {RECOVERY_SECONDS:.0f} s; {result.detail}"
            return replace(result, verdict="failed", detail=detail)
        try:
            self._undisturbed()
        except (PeerError, RefusedError) as error:
            return replace(result, verdict="failed", detail=f"afterwards: {error.message}; {result.detail}")
        return replace(result, recovered_seconds=took)


def _without_answer(kind: Kind, verdict: str, error: PeerError) -> Result:
    return Result(kind.name, "skipped" if verdict == "skipped" else "failed", None, None, None, error.message)


__all__ = ["RECOVERY_SECONDS", "DrillPlan", "run_drill"]
