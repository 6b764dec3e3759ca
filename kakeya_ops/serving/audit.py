"""The self-audit: at an idle moment the head computes an imported prefix itself, and compares what came with it.

What is compared are the payloads' checksums, block by block on the grid. Between nodes whose arithmetic is equal they
are equal to the bit, and any difference in KV shows in the block in which it arises; logits would be a blur of all of
it. An answer never waits for an audit, and an audit gives way to any request at the next block: what it has computed
by then it takes up again from the pool, where the pool still holds the same.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_ops.engine.contract import Ticket
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled, PrefillJob
from kakeya_ops.errors import EngineBusy, EngineDead
from kakeya_ops.kv.pool import BlockPool, StoredPart
from kakeya_ops.serving.audit_case import Case, Imported
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.quarantine import Held, Quarantine

MOST_WAITING = 16
"""Imports that wait for an idle moment; a further one takes the place of the oldest that was merely sampled."""
QUIET_SECONDS = 0.5
"""How long there must have been no request."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditRules:
    """`share` of all imports are audited, drawn by lot, besides the first of each process of a node; with 0 none is.

    `quiet_seconds` must have passed without a request.
    """

    share: float
    quiet_seconds: float = QUIET_SECONDS
    draw: Callable[[], float] = random.SystemRandom().random


class Auditor:
    """Thread-safe. Audits from `start` to `stop`; whatever else is called returns at once."""

    def __init__(
        self, engine: Engine, pool: BlockPool, quarantine: Quarantine, counters: Counters, rules: AuditRules
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._quarantine = quarantine
        self._counters = counters
        self._rules = rules
        self._changed = threading.Condition()
        self._under_way = 0
        self._stopped = False
        self._waiting: deque[Case] = deque()
        self._passed: dict[str, str] = {}
        """Of each node the instance whose KV was found to be right."""
        self._ticket: Ticket | None = None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Begin to audit."""
        self._thread.start()

    def stop(self) -> None:
        """Audit no more; what is going on ends at the next block."""
        with self._changed:
            self._stopped = True
            self._give_way()
        self._thread.join()

    def arrive(self) -> None:
        """A request is there: give way to it."""
        with self._changed:
            self._under_way += 1
            self._give_way()

    def leave(self) -> None:
        """A request has ended."""
        with self._changed:
            self._under_way -= 1
            self._changed.notify_all()

    def consider(self, imported: Imported) -> None:
        """Audit `imported` some time, if it is one of those that are."""
        with self._changed:
            first = self._is_first(imported)
            if self._rules.share <= 0 or not (first or self._rules.draw() < self._rules.share):
                return
            self._make_room()
            # What decides whether a node is trusted at all comes first.
            (self._waiting.appendleft if first else self._waiting.append)(Case(imported, first))
            self._changed.notify_all()

    def settled(self) -> bool:
        """Whether nothing waits to be audited."""
        with self._changed:
            return not self._waiting

    def _is_first(self, imported: Imported) -> bool:
        waiting = {(case.imported.node, case.imported.instance) for case in self._waiting if case.first}
        node, instance = imported.node, imported.instance
        return self._passed.get(node) != instance and (node, instance) not in waiting

    def _make_room(self) -> None:
        while len(self._waiting) >= MOST_WAITING:
            dropped = next((case for case in self._waiting if not case.first), self._waiting[-1])
            self._waiting.remove(dropped)
            self._counters.add(CounterName.AUDITS_DROPPED, worker=dropped.imported.node)

    def _give_way(self) -> None:
        if self._ticket is not None:
            self._ticket.cancel()
        self._changed.notify_all()

    def _run(self) -> None:
        while (case := self._next()) is not None:
            try:
                self._audit(case)
            except EngineDead:
                return
            except EngineBusy:
                continue  # those before it are requests
            except Exception:  # an audit that fails is no reason to audit no more
                _logger.exception("an audit failed")
                self._forget(case)

    def _next(self) -> Case | None:
        """The next case at an idle moment; None when there is none any more."""
        with self._changed:
            while not self._stopped:
                self._changed.wait_for(lambda: self._stopped or bool(self._waiting and not self._under_way))
                # Quiet is a whole pause without any request.
                disturbed = self._changed.wait_for(lambda: self._stopped or self._under_way, self._rules.quiet_seconds)
                if not disturbed and self._waiting:
                    return self._waiting[0]
        return None

    def _audit(self, case: Case) -> None:
        """Compute what `case` lacks and judge it; a request that comes meanwhile leaves it waiting."""
        if self._quarantine.holds(case.imported.node):
            self._forget(case)
            return
        ended: Future[Exception | None] = Future()
        job = PrefillJob(
            tokens=case.imported.prompt.tokens,
            to_block=case.blocks,
            on_block=lambda block, parts: self._look(case, block, parts),
            on_done=ended.set_result,
            prefix=case.resume(self._engine, self._pool),
            keep_states=case.states,
        )
        if self._begin(job):
            error = ended.result()
            with self._changed:
                self._ticket = None
            self._conclude(case, error)

    def _begin(self, job: PrefillJob) -> bool:
        """Queue `job`, unless there is somebody to give way to by now."""
        with self._changed:
            if self._under_way or self._stopped:
                return False
            self._ticket = self._engine.prefill(job)
            return True

    def _look(self, case: Case, block: int, parts: Sequence[StoredPart | None]) -> None:
        """On the compute thread: a node that is wrong is asked no more from this moment on."""
        evidence = case.compare(block, parts, self._pool)
        if evidence is not None:
            self._quarantine.hold(case.imported.node, evidence)
            self._pool.clear()
            if ticket := self._ticket:
                ticket.cancel()

    def _conclude(self, case: Case, error: Exception | None) -> None:
        node = case.imported.node
        if case.failed:
            self._passed.pop(node, None)
            self._counters.add(CounterName.AUDIT_FAILURES, worker=node)
            self._keep_evidence(case)
        elif isinstance(error, Cancelled):
            return  # it still waits
        elif error is None:
            self._passed[node] = case.imported.instance
        else:
            _logger.warning("an audit could not be carried out: %s", error)
        if case.failed or error is None:
            self._counters.add(CounterName.AUDITS, worker=node)
        self._forget(case)

    def _keep_evidence(self, case: Case) -> None:
        node = case.imported.node
        self._quarantine.save()  # before anything that may fail
        self._quarantine.complete(node, case.deviation())
        self._quarantine.save()
        if held := self._quarantine.holds(node):
            _logger.error("put into quarantine", extra=_fields(held))

    def _forget(self, case: Case) -> None:
        with self._changed:
            if case in self._waiting:
                self._waiting.remove(case)
            self._changed.notify_all()


def _fields(held: Held) -> dict[str, object]:
    """What a line of the log says of a finding."""
    evidence = held.evidence
    return {
        "worker": held.node,
        "epoch": evidence.epoch,
        "instance": evidence.instance,
        "request_id": evidence.request_id,
        "block": evidence.block,
        "part": evidence.part,
        "max_deviation": evidence.max_deviation,
        "tolerance": evidence.tolerance,
        "reason": held.reason,
    }


@contextmanager
def auditing(auditor: Auditor) -> Iterator[None]:
    """It audits within it."""
    auditor.start()
    try:
        yield
    finally:
        auditor.stop()


__all__ = ["MOST_WAITING", "QUIET_SECONDS", "AuditRules", "Auditor", "auditing"]
