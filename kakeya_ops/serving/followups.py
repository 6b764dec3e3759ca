"""Finished answers prefilled for the next turn of their conversation, in the background, by whoever is idle.

KV that decoding made is not bit-equal to that of a prefill, so it is never kept: the tokens of prompt and answer are
prefilled once more on the grid, from the end of what is held. A worker does it that has nothing else to do and holds as
much of the conversation as the head; else the head itself, when nobody is served. Both give it up at the next chunk
for anything else, keep the blocks that are done, and it is taken up again later, a few times.

A next turn finds it as far as its prompt begins with the very tokens of this prompt and answer. That is so where the
chat template renders an earlier answer as it was decoded; templates that strip reasoning from earlier turns, or tools
whose arguments are written anew, part there, and only what comes before is found.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kakeya_ops.engine.contract import Ticket
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.errors import EngineBusy, EngineDead, PeerError
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.peer.client import ReceiptRejected
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.audit_case import Imported
from kakeya_ops.serving.backlog import Chain
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.division import Place
from kakeya_ops.serving.holdings import Holdings
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.sources import PeerSource
from kakeya_ops.serving.supply import Delivery, Errand, Order
from kakeya_ops.wire.cards import Card
from kakeya_ops.wire.signing import new_nonce

MOST_WAITING = 16
MOST_TRIES = 3
RETRY_SECONDS = 0.5
"""How long to wait where nobody is idle, or whoever was is not any more."""
_JOIN_SECONDS = 10.0

_logger = logging.getLogger(__name__)


@dataclass
class _Task:
    prompt: Prompt
    tries: int = 0

    @property
    def blocks(self) -> int:
        return len(self.prompt.hashes)


class FollowUps:
    """Runs from the first offer to `close`. Thread-safe. `find_peers` names those that may be asked now."""

    audit: Callable[[Imported], None]
    """Told of what a worker sent, as much of it as came; must return at once."""

    def __init__(
        self,
        engine: Engine,
        node: Node,
        find_peers: Callable[[], Iterable[PeerSource]],
        publish: Callable[[Chain], None],
    ) -> None:
        self.audit = lambda imported: None
        self._engine = engine
        self._node = node
        self._find_peers = find_peers
        self._publish = publish
        self._stop = StopFlag()
        self._changed = threading.Condition()
        self._waiting: list[_Task] = []
        self._working = False
        self._thread: threading.Thread | None = None
        self._ticket: Ticket | None = None

    def offer(self, prompt: Prompt) -> None:
        """Let all whole blocks of `prompt`, an answer at its end, be prefilled. Returns at once.

        The newest come first, and the oldest are dropped when there are too many.
        """
        task = _Task(prompt)
        if not task.blocks or self._own_blocks(task) == task.blocks:
            return
        with self._changed:
            if self._stop.stopped:
                return
            self._waiting.append(task)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.pop(0)
                self._drop("full")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="follow-ups", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing more, giving up what is under way."""
        self._stop.stop()
        with self._changed:
            self._waiting.clear()
            if self._ticket:
                self._ticket.cancel()
            self._changed.notify_all()
        if self._thread:
            self._thread.join(_JOIN_SECONDS)

    def wait_idle(self, seconds: float) -> bool:
        """Wait until nothing waits or is under way; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._working), seconds)

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                done = self._try(task)
            except Exception:
                _logger.exception("an answer could not be prefilled")
                self._drop("internal")
                continue
            if not done:
                self._put_back(task)

    def _next(self) -> _Task | None:
        with self._changed:
            self._working = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: bool(self._waiting) or self._stop.stopped)
            if self._stop.stopped:
                return None
            self._working = True
            return self._waiting.pop()

    def _put_back(self, task: _Task) -> None:
        with self._changed:
            if self._stop.stopped:
                return
            if task.tries >= MOST_TRIES:
                self._drop("interrupted")
                return
            self._waiting.insert(0, task)
            self._changed.wait_for(lambda: self._stop.stopped, RETRY_SECONDS)

    def _try(self, task: _Task) -> bool:
        """Whether there is nothing more to do."""
        own = self._own_blocks(task)
        if own == task.blocks:
            return True
        worker = self._choose_worker(task, own)
        if worker is not None and self._have_computed(task, own, worker):
            return self._finish(task, worker.node)
        if self._engine.queued or self._engine.decoding:
            return False
        task.tries += 1
        return self._compute(task) and self._finish(task, "")

    def _own_blocks(self, task: _Task) -> int:
        prompt = task.prompt
        return longest_resume(prompt.layout, prompt.hashes, self._node.pool.holds, task.blocks)

    def _choose_worker(self, task: _Task, own_blocks: int) -> PeerSource | None:
        """The worker that holds most of it, and no less than is at hand here."""
        found: list[tuple[int, PeerSource]] = []
        for source in self._find_peers():
            if source.card.role == "worker":
                try:
                    held = source.ask_held(task.prompt.hashes, self._stop).resume_blocks
                except PeerError:
                    continue
                found.append((held, source))
        held, worker = max(found, key=lambda pair: pair[0], default=(-1, None))
        return worker if held >= own_blocks else None

    def _have_computed(self, task: _Task, own_blocks: int, worker: PeerSource) -> bool:
        """Have `worker` compute it; False when it is not idle, gave it up for something else, or failed."""
        errand = Errand(new_nonce(), self._stop)
        order = Order(task.prompt, own_blocks, task.blocks, errand, background=True)
        arrived: dict[Place, StoredPart] = {}

        def keep(block: int, part: int, stored: StoredPart) -> None:
            self._keep(task, block, part, stored)
            arrived[block, part] = stored

        told: Delivery | Card = worker.card
        try:
            told = worker.compute(order, keep)
        except ReceiptRejected:
            self._node.pool.drop({task.prompt.key(*place): stored for place, stored in arrived.items()})
            arrived.clear()
            return False
        except PeerError:
            return False
        finally:
            if arrived:
                checksums = {place: stored.checksum for place, stored in arrived.items()}
                imported = Imported(worker.node, told.epoch, told.instance, "remote_compute", task.prompt, checksums)
                self.audit(imported)
        return True

    def _compute(self, task: _Task) -> bool:
        """Compute it here; False when it was given up for something else."""
        ended = threading.Event()
        errors: list[Exception | None] = []

        def done(error: Exception | None) -> None:
            errors.append(error)
            ended.set()

        _, assembly = Holdings(self._engine, self._node.pool, task.prompt, use_pool=True).assemble()
        job = PrefillJob(
            task.prompt.tokens,
            task.blocks,
            lambda block, parts: self._keep_all(task, block, parts),
            done,
            assembly,
            background=True,
        )
        try:
            ticket = self._engine.prefill(job)
        except (EngineBusy, EngineDead):
            return False
        with self._changed:
            self._ticket = ticket
        if self._stop.stopped:
            ticket.cancel()
        ended.wait()
        return errors == [None]

    def _keep_all(self, task: _Task, block: int, parts: tuple[StoredPart | None, ...]) -> None:
        for part, stored in enumerate(parts):
            if stored is not None:
                self._keep(task, block, part, stored)

    def _keep(self, task: _Task, block: int, part: int, stored: StoredPart) -> None:
        self._node.pool.put(task.prompt.key(block, part), stored)

    def _finish(self, task: _Task, worker: str) -> bool:
        prompt = task.prompt
        self._node.pool.touch_prefix(prompt.key(*place) for place in prompt.layout.needed(task.blocks))
        self._node.counters.add(CounterName.ANSWERS_PREFILLED, worker=worker)
        self._publish(Chain(prompt, task.blocks))
        return True

    def _drop(self, reason: str) -> None:
        self._node.counters.add(CounterName.ANSWERS_DROPPED, reason=reason)


__all__ = ["MOST_TRIES", "MOST_WAITING", "RETRY_SECONDS", "FollowUps"]
