"""Prefill jobs of a worker: equal requests share one, nobody's slowness costs memory, unwanted ones end early.

A job that everybody has left goes on for a grace period, in which a client that sends its request again joins it.

A finished block goes into the pool. Each subscriber has those that it wants pinned until it takes them, so what waits
for a slow reader is part of the pool's budget. When a new block finds no room, the reader that has been idle longest
loses its job; the others go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack

from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled, PrefillJob
from kakeya_ops.errors import EngineBusy, InputError, PoolFull
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.grace import NO_GRACE, Grace
from kakeya_ops.serving.job import Job, OnChange, Subscription, Wish
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.bodies import Progress

_logger = logging.getLogger(__name__)

MOST_JOBS = 64
"""Jobs that are running, waiting, or being given up."""


class JobBook:
    """All jobs of a worker. Thread-safe; `subscribe` may block for as long as a chunk takes, nothing else does."""

    def __init__(
        self,
        engine: Engine,
        pool: BlockPool,
        counters: Counters,
        *,
        most_jobs: int = MOST_JOBS,
        grace: Grace = NO_GRACE,
    ) -> None:
        self.lock = threading.Lock()
        self._engine = engine
        self._pool = pool
        self._counters = counters
        self._most_jobs = most_jobs
        self._grace = grace
        self._shared: dict[tuple[bytes, str, bool], Job] = {}
        self._running: set[Job] = set()
        self._readers: dict[Subscription, Job] = {}
        """Who has not closed yet, also those of jobs that have ended."""

    def __len__(self) -> int:
        return len(self._running)

    def subscribe(self, wish: Wish, on_change: OnChange) -> Subscription:
        """Join the job that makes what is wished, or begin one.

        Raises `EngineBusy` when too much waits already (in the background: anything at all), `EngineDead`, or
        `InputError` for what is no whole number of the prompt's blocks.
        """
        if not 0 < wish.blocks <= len(wish.prompt.hashes):
            raise InputError(f"{wish.blocks} blocks are wanted of a prompt that has {len(wish.prompt.hashes)}")
        with self.lock:
            subscription, fresh = self._join(wish, on_change)
        if fresh is not None:
            try:
                self._start(fresh)
            except Exception as error:
                self._finish(fresh, error)
                subscription.close()
                raise
        return subscription

    def leave(self, job: Job, subscription: Subscription) -> None:
        """See `Subscription.close`."""
        with self.lock:
            self._remove(job, subscription)
            if not job.unwanted:
                return
            if job.background or not self._grace.seconds:
                self._give_up(job)
                return
            job.times_left = left = job.times_left + 1
        self._grace.later(self._grace.seconds, lambda: self._expire(job, left))

    def makes(self, hashes: Collection[BlockHash]) -> bool:
        """Whether a job is under way that a request for the whole of a prompt with these block hashes may join."""
        with self.lock:
            return any(name in hashes and not background for name, _, background in self._shared)

    def progress(self, job: Job) -> Progress:
        """See `Subscription.progress`."""
        done = job.done_blocks
        if job.ended:
            return Progress(stage="sending", done_blocks=done, blocks=job.blocks)
        if job.resume_blocks is not None and done > job.resume_blocks:
            return Progress(stage="computing", done_blocks=done, blocks=job.blocks)
        return Progress(stage="queued", done_blocks=done, blocks=job.blocks, queue_seconds=self._engine.queue_seconds())

    def _join(self, wish: Wish, on_change: OnChange) -> tuple[Subscription, Job | None]:
        """A subscription, and the job if it is a new one."""
        job = Job(wish.prompt, wish.blocks, wish.background)
        shared = self._shared.get(job.key)
        if shared is not None:
            subscription = Subscription(shared, wish, on_change, self)
            if self._offer_done(shared, subscription):
                self._admit(shared, subscription)
                self._counters.add(CounterName.JOBS_JOINED)
                return subscription, None
        if len(self._running) >= (1 if wish.background else self._most_jobs):
            raise EngineBusy(max(self._engine.queue_seconds(), 1.0))
        subscription = Subscription(job, wish, on_change, self)
        self._admit(job, subscription)
        self._running.add(job)
        self._shared[job.key] = job
        return subscription, job

    def _admit(self, job: Job, subscription: Subscription) -> None:
        job.subscribers.append(subscription)
        self._readers[subscription] = job

    def _offer_done(self, job: Job, subscription: Subscription) -> bool:
        """Offer what is done already of what is wanted; False if some of it has left the pool."""
        if job.resume_blocks is None:
            return True
        done = {block: parts for block, parts in subscription.wanted.items() if block < job.done_blocks}
        if all(self._offer(job, subscription, block, part) for block in sorted(done) for part in done[block]):
            return True
        subscription.release()
        return False

    def _offer(self, job: Job, subscription: Subscription, block: int, part: int) -> bool:
        key = job.prompt.key(block, part)
        lease = self._pool.pin([key])
        if not lease.parts:
            return False
        subscription.offer(block, key, lease)
        return True

    def _start(self, job: Job) -> None:
        with ExitStack() as pins:
            held = self._pin_prefix(job, pins)
            with self.lock:
                job.resume_blocks = job.done_blocks = self._resume_after(job, held)
                for subscription in job.subscribers:
                    self._offer_done(job, subscription)
            self._counters.add(CounterName.JOBS_STARTED)
            self._counters.add(CounterName.TOKENS_FROM_POOL, job.account().pool_tokens)
            if job.resume_blocks == job.blocks:
                self._finish(job, None)
            else:
                self._compute(job, job.resume_blocks, held)

    def _pin_prefix(self, job: Job, pins: ExitStack) -> dict[PartKey, StoredPart]:
        prompt = job.prompt
        blocks = longest_resume(prompt.layout, prompt.hashes, self._pool.holds, job.blocks)
        return pins.enter_context(self._pool.pin(prompt.key(*place) for place in prompt.layout.needed(blocks)))

    def _resume_after(self, job: Job, held: dict[PartKey, StoredPart]) -> int:
        return longest_resume(job.prompt.layout, job.prompt.hashes, held.__contains__, job.blocks)

    def _compute(self, job: Job, resume_blocks: int, held: dict[PartKey, StoredPart]) -> None:
        assembly = None
        if resume_blocks:
            assembly = self._engine.open_import(resume_blocks)
            for block, part in job.prompt.layout.needed(resume_blocks):
                assembly.place(block, part, held[job.prompt.key(block, part)].data)
        ticket = self._engine.prefill(
            PrefillJob(
                tokens=job.prompt.tokens,
                to_block=job.blocks,
                on_block=lambda block, parts: self._take_block(job, block, parts),
                on_done=lambda error: self._finish(job, error),
                prefix=assembly,
                background=job.background,
            )
        )
        with self.lock:
            job.ticket = ticket
            abandoned = job.abandoned
        if abandoned:
            ticket.cancel()

    def _take_block(self, job: Job, block: int, parts: tuple[StoredPart | None, ...]) -> None:
        """Keep one finished block and offer it to whoever wants it. On the compute thread."""
        stored = {job.prompt.key(block, part): data for part, data in enumerate(parts) if data is not None}
        with self.lock:
            if job.done_blocks == job.resume_blocks:
                job.queue_seconds = max(time.monotonic() - job.began - self._chunk_seconds(job), 0.0)
            self._store(stored)
            for subscription in tuple(job.subscribers):
                wanted = subscription.wanted.get(block, ())
                if not all(self._offer(job, subscription, block, part) for part in wanted):
                    self._drop(job, subscription, self._no_room(stored.values()))
            job.done_blocks = block + 1
            listeners = tuple(job.subscribers)
        self._counters.add(CounterName.TOKENS_COMPUTED, job.prompt.layout.block_tokens)
        for listener in listeners:
            listener.notify()

    def _store(self, stored: dict[PartKey, StoredPart]) -> None:
        """Put a block into the pool, if need be at the cost of those who do not read. Raises `PoolFull`."""
        while not self._pool.put_all(stored):
            waiting = [reader for reader in self._readers if reader.waiting]
            if not waiting:
                raise self._no_room(stored.values())
            slowest = min(waiting, key=lambda reader: reader.taken_at)
            self._drop(self._readers[slowest], slowest, self._no_room(stored.values()))

    def _drop(self, job: Job, subscription: Subscription, error: Exception) -> None:
        """End one subscriber's share with `error`."""
        self._remove(job, subscription)
        if job.unwanted:
            self._give_up(job)
        subscription.end(error)
        subscription.notify()

    def _remove(self, job: Job, subscription: Subscription) -> None:
        """Let `subscription` want nothing any more."""
        subscription.release()
        self._readers.pop(subscription, None)
        if subscription in job.subscribers:
            job.subscribers.remove(subscription)

    def _expire(self, job: Job, times_left: int) -> None:
        """The grace of the job's leaving number `times_left` is over."""
        with self.lock:
            if job.unwanted and job.times_left == times_left:
                self._give_up(job)

    def _give_up(self, job: Job) -> None:
        job.abandoned = True
        self._forget(job)
        if job.ticket is not None:
            job.ticket.cancel()

    def _no_room(self, parts: Iterable[StoredPart]) -> PoolFull:
        return PoolFull(sum(part.nbytes for part in parts), self._pool.budget_bytes)

    def _chunk_seconds(self, job: Job) -> float:
        rate = self._engine.measured.tokens_per_second
        return job.prompt.layout.block_tokens / rate if rate else 0.0

    def _finish(self, job: Job, error: Exception | None) -> None:
        with self.lock:
            if job.ended:
                return
            job.ended = True
            job.seconds = time.monotonic() - job.began
            self._running.discard(job)
            self._forget(job)
            listeners = tuple(job.subscribers)
            for listener in listeners:
                listener.end(error)
        self._counters.add(_outcome(error))
        _log_end(job, error)
        for listener in listeners:
            listener.notify()

    def _forget(self, job: Job) -> None:
        """Let nobody join `job` any more."""
        if self._shared.get(job.key) is job:
            del self._shared[job.key]


def _log_end(job: Job, error: Exception | None) -> None:
    account, outcome = job.account(), _outcome(error)
    fields = {
        "job": account.job,
        "request_id": job.prompt.request_id,
        "outcome": outcome.value.removeprefix("jobs_"),
        "computed_tokens": account.computed_tokens,
        "pool_tokens": account.pool_tokens,
        "queue_seconds": round(account.queue_seconds, 6),
        "compute_seconds": round(account.compute_seconds, 6),
    }
    failed = outcome is CounterName.JOBS_FAILED
    _logger.log(
        logging.WARNING if failed else logging.INFO, "job ended", extra=fields, exc_info=error if failed else None
    )


def _outcome(error: Exception | None) -> CounterName:
    if error is None:
        return CounterName.JOBS_FINISHED
    return CounterName.JOBS_CANCELLED if isinstance(error, Cancelled) else CounterName.JOBS_FAILED


__all__ = ["MOST_JOBS", "JobBook"]
