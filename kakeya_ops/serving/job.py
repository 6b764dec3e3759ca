"""One prefill job, and what each of those who share it has still to take."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kakeya_ops.engine.contract import Ticket
from kakeya_ops.kv.pool import Lease, PartKey, StoredPart
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.wire.bodies import Progress

OnChange = Callable[[], None]
"""Called from any thread when there is something new to take: must return at once."""


class ReadyPart(NamedTuple):
    """One payload that a subscriber may send."""

    block: int
    key: PartKey
    stored: StoredPart


@dataclass(frozen=True)
class JobEnd:
    """Nothing follows. `error` is None when every wanted part was there to take."""

    error: Exception | None


@dataclass(frozen=True)
class Account:
    """How a job went: what it computed itself and what the pool had; Unix times and seconds on this node's clock."""

    job: str
    computed_tokens: int
    pool_tokens: int
    queue_seconds: float
    compute_seconds: float
    started_at: float
    finished_at: float


@dataclass(frozen=True)
class Wish:
    """The blocks ``[from_blocks, blocks)`` of `prompt`, as far as they are needed to resume after `blocks` blocks.

    In the `background` it is given up as soon as anything else is wanted.
    """

    prompt: Prompt
    from_blocks: int
    blocks: int
    background: bool = False

    @property
    def parts(self) -> dict[int, tuple[int, ...]]:
        """The wanted parts of each block."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for block, part in self.prompt.layout.needed(self.blocks):
            if block >= self.from_blocks:
                found[block].append(part)
        return {block: tuple(parts) for block, parts in found.items()}


class Desk(Protocol):
    """What a subscription needs of its book. `lock` guards all jobs and subscriptions."""

    lock: threading.Lock

    def progress(self, job: Job) -> Progress:
        """How far `job` is."""

    def leave(self, job: Job, subscription: Subscription) -> None:
        """Let `subscription` want nothing any more."""


class Subscription:
    """One request's share of a job.

    The request calls `take`, `progress`, `account` and `close`; the book calls the others, and holds the lock.
    """

    def __init__(self, job: Job, wish: Wish, on_change: OnChange, desk: Desk) -> None:
        self._job = job
        self._desk = desk
        self._on_change = on_change
        self._ready: deque[tuple[int, PartKey, Lease]] = deque()
        self._end: JobEnd | None = None
        self.wanted = wish.parts
        self.taken_at = time.monotonic()

    @property
    def job_id(self) -> str:
        """The job's name, the same for all who share it."""
        return self._job.id

    def take(self) -> ReadyPart | JobEnd | None:
        """The next part in order, the end after the last, or None while there is nothing to take."""
        with self._desk.lock:
            self.taken_at = time.monotonic()
            if not self._ready:
                return self._end
            block, key, lease = self._ready.popleft()
        stored = lease.parts[key]
        lease.release()
        return ReadyPart(block, key, stored)

    def progress(self) -> Progress:
        """How far the job is."""
        return self._desk.progress(self._job)

    def account(self) -> Account:
        """How the job went so far."""
        return self._job.account()

    def close(self) -> None:
        """Want nothing any more. A job that nobody wants ends after its grace, at its next chunk."""
        self._desk.leave(self._job, self)

    @property
    def waiting(self) -> bool:
        """Whether something is pinned for this subscriber."""
        return bool(self._ready)

    def offer(self, block: int, key: PartKey, lease: Lease) -> None:
        """Let it take one more part."""
        self._ready.append((block, key, lease))

    def end(self, error: Exception | None) -> None:
        """Let nothing follow what is ready. An error is the last word, also on a job that had ended well."""
        if self._end is None or error is not None:
            self._end = JobEnd(error)

    def release(self) -> None:
        """Unpin all that was not taken."""
        while self._ready:
            self._ready.popleft()[2].release()

    def notify(self) -> None:
        """Say that there is something new."""
        self._on_change()


@dataclass(eq=False)
class Job:
    """One prompt up to one block. `resume_blocks` is None until it is known what the pool holds of it."""

    prompt: Prompt
    blocks: int
    background: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    subscribers: list[Subscription] = field(default_factory=list)
    resume_blocks: int | None = None
    done_blocks: int = 0
    ticket: Ticket | None = None
    abandoned: bool = False
    ended: bool = False
    times_left: int = 0
    queue_seconds: float = 0.0
    started_at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def key(self) -> tuple[bytes, str, bool]:
        """Equal for requests that can share this job: nobody who waits shares one that may be given up."""
        return self.prompt.hashes[self.blocks - 1], self.prompt.tenant, self.background

    @property
    def unwanted(self) -> bool:
        """Whether it goes on and nobody waits for it."""
        return not self.subscribers and not self.ended

    def account(self) -> Account:
        """See `Subscription.account`."""
        size, resumed = self.prompt.layout.block_tokens, self.resume_blocks or 0
        return Account(
            job=self.id,
            computed_tokens=(self.done_blocks - resumed) * size,
            pool_tokens=resumed * size,
            queue_seconds=self.queue_seconds,
            compute_seconds=max(self.seconds - self.queue_seconds, 0.0),
            started_at=self.started_at,
            finished_at=self.started_at + self.seconds,
        )


__all__ = ["Account", "Desk", "Job", "JobEnd", "OnChange", "ReadyPart", "Subscription", "Wish"]
