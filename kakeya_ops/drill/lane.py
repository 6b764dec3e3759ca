"""One worker's share of a drill: each kind is brought about, met by one request, undone, and judged."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kakeya_ops.drill.asking import LOCAL, Asked, Inquirer
from kakeya_ops.drill.catalogue import Intrusion, Kind
from kakeya_ops.drill.claims import MadeUp, make_up
from kakeya_ops.drill.intruding import intrude, secured_way
from kakeya_ops.drill.nodes import NodeDoor, Operator
from kakeya_ops.drill.report import Result, Seen, judge
from kakeya_ops.errors import PeerError, PeerRefused, RefusedError
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.wire.drills import Fault
from kakeya_ops.wire.signing import new_nonce

RECOVERY_SECONDS = 120.0
"""The longest wait until the head uses the worker again: the longest pause after failures, or a model that is loaded
anew."""
_UNDISTURBED = 3
_SLOWER = 4
_TRIES = 3
"""A request that did not meet the fault, because the head was busy or went another way, says nothing about it."""


@dataclass(frozen=True)
class Scene:
    """Who takes part: the requests through the head, the worker that is drilled, and the head itself as a node.

    `operator` and `ways` are how the worker is reached from here.
    """

    inquirer: Inquirer
    worker: NodeDoor
    head: NodeDoor
    operator: Operator
    ways: Sequence[Endpoint] = ()


class Lane:
    """The kinds that one worker is drilled with, one after the other. `leave` may be called from any thread."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.name = scene.worker.node
        self.undisturbed_seconds = 0.0
        self._payload_bytes = 0
        self._lock = threading.Lock()
        self._over = False
        self._made_up: MadeUp | None = None

    def check(self) -> None:
        """Raise `RefusedError` where the worker takes no part, and `PeerError` where it cannot be reached from here."""
        try:
            self.scene.worker.disarm()
        except PeerRefused as error:
            raise RefusedError(
                f"{error.message}", hint="set fleet.drill: true in the inventory and deploy it"
            ) from error

    def measure(self) -> None:
        """Learn how long requests take that meet nothing. Raises `RefusedError` if the worker computes nothing."""
        undisturbed = [self.ask_undisturbed() for _ in range(_UNDISTURBED)]
        self.undisturbed_seconds = statistics.median(asked.seconds for asked in undisturbed)
        self._payload_bytes = int(undisturbed[-1].receipt["remote"]["payload_bytes"])

    def ask_undisturbed(self) -> Asked:
        """A request whose prefix the worker computes. Raises `RefusedError` if it does not, and `PeerError`.

        A busy machine may be late once: that is told from a worker that computes nothing.
        """
        asked, tries = self._demand(), 1
        while asked.receipt.get("remote") is None and tries < _TRIES:
            self.scene.inquirer.wait(self._usable, RECOVERY_SECONDS)
            asked, tries = self._demand(), tries + 1
        if asked.receipt.get("remote") is None:
            reason = (asked.receipt.get("fallback") or asked.receipt["decision"]).get("message", "it was not asked")
            raise RefusedError(
                f"{self.name} does not compute prefixes even undisturbed: {reason}",
                hint="run: kakeya verify remote-prefill",
            )
        return asked

    def _demand(self) -> Asked:
        inquirer = self.scene.inquirer
        return inquirer.ask(inquirer.body(), frozenset({"remote"}), new_nonce(), self.name)

    def attempt(self, kind: Kind) -> Result:
        """The result of one kind, when all that it broke is whole again."""
        epoch = self.scene.inquirer.node(self.name).get("epoch") if kind.fatal else None
        try:
            result = self._meet(kind) if kind.intrusion is None else self._meet_intruder(kind, kind.intrusion)
        except PeerRefused as error:
            verdict = "skipped" if error.code == "refused" else "failed"
            result = without_answer(kind, error.message, skipped=verdict == "skipped")
        except PeerError as error:
            result = without_answer(kind, error.message)
        return replace(result if result.verdict == "skipped" else self.recover(result, epoch), worker=self.name)

    def leave(self) -> None:
        """Arm nothing any more, and undo what is armed or claimed."""
        with self._lock:
            self._over = True
        with contextlib.suppress(PeerError):
            self._take_back()
        with contextlib.suppress(PeerError):
            self.scene.worker.disarm()

    def _meet(self, kind: Kind) -> Result:
        seen, tries = self._meet_once(kind), 1
        while seen.met == 0 and tries < _TRIES:
            self.scene.inquirer.wait(self._usable, RECOVERY_SECONDS)
            seen, tries = self._meet_once(kind), tries + 1
        return judge(kind, seen, self.undisturbed_seconds)

    def _meet_intruder(self, kind: Kind, intrusion: Intrusion) -> Result:
        way = secured_way(self.scene.ways, self.scene.operator)
        if way is None:
            return without_answer(kind, f"no endpoint of {self.name} speaks TLS: nobody is to be refused", skipped=True)
        said = intrude(self.name, way, self.scene.operator, intrusion)
        if said is None:
            return without_answer(kind, f"{self.name} answered somebody who came {intrusion}")
        result = self._meet(kind)
        return replace(result, detail=f"{said}; {result.detail}")

    def _meet_once(self, kind: Kind) -> Seen:
        inquirer = self.scene.inquirer
        body, nonce = inquirer.body(), new_nonce()
        before = inquirer.fallbacks()
        try:
            self._bring_about(kind, nonce)
            asked = inquirer.ask(body, kind.modes, nonce, self.name)
        finally:
            met = self._undo(kind)
        after = inquirer.fallbacks()
        local = inquirer.ask(body, LOCAL, new_nonce())
        counted = {reason: count - before.get(reason, 0) for reason, count in after.items()}
        return Seen(asked.completion.tokens, local.completion.tokens, asked.receipt, met, counted, asked.seconds)

    def _bring_about(self, kind: Kind, nonce: str) -> None:
        worker = self.scene.worker
        with self._lock:
            if self._over:
                raise PeerRefused(self.name, 409, "refused", "the drill is over")
            if kind.claim is not None:
                self._made_up = make_up(worker.card(), kind.claim)
                self.scene.head.tell(self._made_up.told)
            elif kind.fault is not None:
                worker.arm(self._aim(kind.fault, nonce))

    def _aim(self, fault: Fault, nonce: str) -> Fault:
        # Of streams only the drill's own is spoilt; what is asked before that cannot be told apart.
        only = nonce if fault.on == "prefill" else None
        return fault.model_copy(update={"nonce": only, "bytes_per_second": self._slow_rate()})

    def _slow_rate(self) -> int:
        """Bytes a second at which a prefix takes several times as long as undisturbed."""
        return max(int(self._payload_bytes / max(_SLOWER * self.undisturbed_seconds, 1.0)), 1)

    def _undo(self, kind: Kind) -> int | None:
        """How many requests met the fault; None where that cannot be known."""
        self._take_back()
        return None if kind.fault is None or kind.fatal else self.scene.worker.disarm().met

    def _take_back(self) -> None:
        with self._lock:
            made_up, self._made_up = self._made_up, None
        if made_up:
            self.scene.head.tell([made_up.taken_back])

    def _usable(self) -> bool:
        return bool(self.scene.inquirer.node(self.name).get("usable"))

    def recover(self, result: Result, ended_epoch: int | None = None) -> Result:
        """The same result, once the head uses the worker again: another process than that of `ended_epoch`."""
        inquirer = self.scene.inquirer

        def back() -> bool:
            node = inquirer.node(self.name)
            return bool(node.get("usable")) and node.get("epoch") != ended_epoch

        took = inquirer.wait(back, RECOVERY_SECONDS)
        if took is None:
            detail = f"{self.name} was not used again within {RECOVERY_SECONDS:.0f} s; {result.detail}"
            return replace(result, verdict="failed", detail=detail)
        try:
            self.ask_undisturbed()
        except (PeerError, RefusedError) as error:
            return replace(result, verdict="failed", detail=f"afterwards: {error.message}; {result.detail}")
        return replace(result, recovered_seconds=took)


def without_answer(kind: Kind, why: str, *, skipped: bool = False) -> Result:
    """A kind of which no request tells anything."""
    return Result(kind.name, "skipped" if skipped else "failed", None, None, None, why)


__all__ = ["RECOVERY_SECONDS", "Lane", "Scene", "without_answer"]
