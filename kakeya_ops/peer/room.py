"""Memory for payloads that come in: what nobody refers to any more is handed out again.

Memory that was written to before takes bytes several times as fast as fresh memory, whose every page the system must
find and clear first. A pool that is full gives back one payload for each that it takes.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

KEPT_BYTES = 64 * 1024 * 1024
"""The most that is kept while nobody uses it; a node has one room, for which the memory forecast counts as much."""
_LEAST_BYTES = 16 * 1024
"""Smaller memory is not worth keeping."""

_Memory = NDArray[np.uint8]


class Room:
    """Hands out buffers of exactly the wanted size. Thread-safe.

    A buffer comes back by itself once neither it nor any view of it is referred to; up to `kept_bytes` wait to be used
    again, the longest unused give way.
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = kept_bytes
        self._lock = threading.RLock()  # collecting garbage may give back memory in the midst of `take`
        self._waiting: dict[int, list[_Memory]] = defaultdict(list)
        self._waiting_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are kept and not used."""
        return self._waiting_bytes

    def take(self, nbytes: int) -> memoryview:
        """A writable buffer of `nbytes`, whose content is anything."""
        if nbytes < _LEAST_BYTES:
            return np.empty(nbytes, np.uint8).data
        memory = self._find(nbytes)
        if memory is None:
            memory = np.empty(nbytes, np.uint8)
        lent = memory[:]
        weakref.finalize(lent, self._give_back, memory).atexit = False
        return lent.data

    def release(self) -> None:
        """Keep nothing of what waits."""
        with self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0

    def _find(self, nbytes: int) -> _Memory | None:
        with self._lock:
            if not self._waiting.get(nbytes):
                return None
            self._waiting_bytes -= nbytes
            return self._waiting[nbytes].pop()

    def _give_back(self, memory: _Memory) -> None:
        with self._lock:
            if memory.nbytes > self._limit_bytes:
                return
            self._waiting[memory.nbytes].append(memory)
            self._waiting_bytes += memory.nbytes
            while self._waiting_bytes > self._limit_bytes:
                self._drop_one()

    def _drop_one(self) -> None:
        """Let go of one of the size that was first kept: sizes that are no longer asked for go first."""
        size = next(size for size, waiting in self._waiting.items() if waiting)
        self._waiting[size].pop(0)
        self._waiting_bytes -= size
        if not self._waiting[size]:
            del self._waiting[size]


__all__ = ["KEPT_BYTES", "Room"]
