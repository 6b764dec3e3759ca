"""Jobs on a bench: an engine that stands still when told to, and readers that take what they are told to take."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from engine_bench import BLOCK_TOKENS, prompt
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.grace import NO_GRACE, Grace
from kakeya_ops.serving.job import JobEnd, ReadyPart, Subscription, Wish
from kakeya_ops.serving.jobs import JobBook
from serving.running import DEADLINE_SECONDS, hash_prompt

BLOCKS = 12


class Reader:
    """One subscriber: takes what comes when told to. With `brake` the engine waits after each block for a `step`."""

    def __init__(self, book: JobBook, wish: Wish, *, brake: bool = False) -> None:
        self.parts: list[ReadyPart] = []
        self.end: JobEnd | None = None
        self._brake = brake
        self._steps = threading.Semaphore(0)
        self._blocks = threading.Semaphore(0)
        self._rung = threading.Semaphore(0)
        self.subscription: Subscription = book.subscribe(wish, self._ring)

    def _ring(self) -> None:
        self._rung.release()
        if self._brake and threading.current_thread().name == "compute":
            self._blocks.release()
            self._steps.acquire(timeout=DEADLINE_SECONDS)

    def wait_for_block(self) -> None:
        """Wait until the engine stands after a block."""
        assert self._blocks.acquire(timeout=DEADLINE_SECONDS)

    def step(self) -> None:
        """Let the engine go on to the end of the next block."""
        self._steps.release()
        self.wait_for_block()

    def let_go(self) -> None:
        """Brake no more."""
        self._brake = False
        self._steps.release()

    def read(self, until: Callable[[], bool] = lambda: False) -> Reader:
        """Take everything up to the end, or until enough has come."""
        while not until():
            item = self.subscription.take()
            if isinstance(item, JobEnd):
                self.end = item
                break
            if item is not None:
                self.parts.append(item)
            else:
                assert self._rung.acquire(timeout=DEADLINE_SECONDS), "nothing comes any more"
        return self

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(part.block, part.key.part) for part in self.parts]

    @property
    def error(self) -> Exception | None:
        assert self.end is not None
        return self.end.error


class Bench:
    """An engine, a pool, counters and the book over them."""

    def __init__(self, engine: Engine, budget_bytes: int = 2**24, most_jobs: int = 8, grace: Grace = NO_GRACE) -> None:
        self.engine = engine
        self.pool = BlockPool(budget_bytes)
        self.counters = Counters()
        self.book = JobBook(engine, self.pool, self.counters, most_jobs=most_jobs, grace=grace)

    def wish(self, seed: int, blocks: int = BLOCKS, from_blocks: int = 0) -> Wish:
        tokens = prompt(BLOCKS * BLOCK_TOKENS + 1, seed=seed)
        return Wish(hash_prompt(self.engine.identity, tokens), from_blocks, blocks)

    def open(self, wish: Wish, *, brake: bool = False) -> Reader:
        return Reader(self.book, wish, brake=brake)

    def compute(self, wish: Wish) -> Reader:
        reader = self.open(wish).read()
        reader.subscription.close()
        assert reader.error is None
        return reader

    def count(self, name: CounterName) -> float:
        return self.counters.value(name)

    def wait_for_idle(self) -> None:
        """Wait until no job is left."""
        while len(self.book):
            self.engine.call(lambda: None)


@contextlib.contextmanager
def held(engine: Engine) -> Iterator[None]:
    """The compute thread stands still within it."""
    reached, go = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(DEADLINE_SECONDS)

    thread = threading.Thread(target=engine.call, args=(wait,))
    thread.start()
    assert reached.wait(DEADLINE_SECONDS)
    try:
        yield
    finally:
        go.set()
        thread.join(DEADLINE_SECONDS)


__all__ = ["BLOCKS", "Bench", "Reader", "held"]
