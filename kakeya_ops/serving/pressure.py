"""Memory that runs short: the pool gives way first, then new requests are refused; and both come back.

A look is taken every second. With less available than `keep_free_bytes` the pool's budget falls below what it holds by
what is missing, so that entries go which nobody uses, the least recently used first, and MLX and the peers' clients
give their spare buffers back. Where nothing is left that could go and less than half of `keep_free_bytes` is available,
requests are refused until it is there again. With a quarter more than `keep_free_bytes` the budget grows, up to what
the inventory gives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_ops.errors import MemoryShort
from kakeya_ops.kv.pool import BlockPool, PoolStats
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.memory_room import Room, Strain, read_room
from kakeya_ops.serving.node import Node

LOOK_SECONDS = 1.0
_RETRY_SECONDS = 5.0
_MOST_KEPT_FREE_BYTES = 2**30
_KEPT_FREE_SHARE = 16
_GROWING_MARGIN = 1.25
_REFUSING_SHARE = 0.5
_STRAINED: dict[Strain, float] = {"warning": 0.75, "critical": 0.25}
"""What is taken as available at most while macOS says so, in terms of `keep_free_bytes`."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Relief:
    """What a look leads to: the pool's new budget, and whether new requests are refused."""

    budget_bytes: int
    refusing: bool


def plan_relief(room: Room, pool: PoolStats, most_bytes: int, keep_free_bytes: int | None = None) -> Relief:
    """Decide on one look. `most_bytes` is the inventory's budget. Pure.

    `keep_free_bytes` of None is a sixteenth of the memory, 1 GiB at most.
    """
    wanted = keep_free_bytes or min(room.total_bytes // _KEPT_FREE_SHARE, _MOST_KEPT_FREE_BYTES)
    available = room.available_bytes
    if room.strain in _STRAINED:
        available = min(available, int(wanted * _STRAINED[room.strain]))
    held = pool.used_bytes + pool.reserved_bytes
    fitting = min(max(held + available - wanted, 0), most_bytes)
    if available < wanted:
        stuck = pool.pinned_bytes + pool.reserved_bytes >= held
        return Relief(min(fitting, pool.budget_bytes), stuck and available < wanted * _REFUSING_SHARE)
    grows = available >= wanted * _GROWING_MARGIN
    return Relief(max(fitting, pool.budget_bytes) if grows else pool.budget_bytes, False)


class Pressure:
    """Watches over one node's memory. `look` is for one thread; `check` for any."""

    def __init__(self, node: Node, keep_free_bytes: int | None, read: Callable[[], Room] = read_room) -> None:
        self._node = node
        self._pool: BlockPool = node.pool
        self._most_bytes = node.pool.budget_bytes
        self._keep_free_bytes = keep_free_bytes
        self._read = read
        self.refusing = False

    def look(self) -> None:
        """Take one look, and do what it leads to."""
        before = self._pool.stats()
        relief = plan_relief(self._read(), before, self._most_bytes, self._keep_free_bytes)
        if relief.budget_bytes != before.budget_bytes:
            self._pool.resize(relief.budget_bytes)
        if relief.budget_bytes < before.budget_bytes:
            self._node.counters.add(CounterName.POOL_SHRUNK)
            self._node.room.release()  # where some of the pool's buffers have gone
            if self._node.engine:
                self._node.engine.release_spare()
        if relief.refusing != self.refusing:
            self.refusing = relief.refusing
            _logger.warning("memory is %s", "short: requests are refused" if self.refusing else "there again")

    def check(self) -> None:
        """Raise `MemoryShort` while requests are refused."""
        if self.refusing:
            raise MemoryShort(_RETRY_SECONDS)


@contextmanager
def watching_memory(
    node: Node, keep_free_bytes: int | None, read: Callable[[], Room] = read_room
) -> Iterator[Pressure]:
    """A thread looks after the memory of `node` within it, and its engine admits nobody while it is short."""
    pressure, stop = Pressure(node, keep_free_bytes, read), threading.Event()

    def watch() -> None:
        while not stop.wait(LOOK_SECONDS):
            try:
                pressure.look()
            except Exception:  # to fail once is no reason to look no more
                _logger.exception("a look at the memory failed")

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    if node.engine:
        node.engine.check_admission = pressure.check
    thread.start()
    try:
        yield pressure
    finally:
        stop.set()
        thread.join()


__all__ = ["LOOK_SECONDS", "Pressure", "Relief", "plan_relief", "watching_memory"]
