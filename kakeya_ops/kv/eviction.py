"""In which order idle payloads leave a pool: what was used once before what was used again, each least recently first.

So a long import that nobody asks for twice washes out others of its kind, but not what every request begins with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class EvictionOrder(Generic[K]):
    """The idle keys of a pool. What is favoured stays so while it is in use, until it leaves or others take its place.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._ordinary: OrderedDict[K, None] = OrderedDict()
        self._favoured: OrderedDict[K, None] = OrderedDict()
        self._hot: OrderedDict[K, int] = OrderedDict()
        """Every favoured key, idle or not, with its bytes."""
        self._hot_bytes = 0

    def __contains__(self, key: K) -> bool:
        return key in self._ordinary or key in self._favoured

    def __iter__(self) -> Iterator[K]:
        """The next to leave first."""
        yield from self._ordinary
        yield from self._favoured

    def add(self, key: K) -> None:
        """Let `key` be idle, used just now."""
        shelf = self._favoured if key in self._hot else self._ordinary
        shelf[key] = None
        shelf.move_to_end(key)

    def remove(self, key: K) -> None:
        """Let `key`, which is idle, be in use."""
        self._ordinary.pop(key, None)
        self._favoured.pop(key, None)

    def forget(self, key: K) -> None:
        """Let `key`, which is idle, leave now."""
        self.remove(key)
        self._hot_bytes -= self._hot.pop(key, 0)

    def pop(self) -> K | None:
        """The next to leave, which is forgotten; None when nothing is idle."""
        shelf = self._ordinary or self._favoured
        if not shelf:
            return None
        key, _ = shelf.popitem(last=False)
        self._hot_bytes -= self._hot.pop(key, 0)
        return key

    def favour(self, key: K, nbytes: int, most_bytes: int) -> None:
        """Let `key`, of `nbytes`, leave after all that is not favoured.

        Where more than `most_bytes` would be favoured, those that were so least recently are ordinary again.
        """
        self._hot_bytes += nbytes - self._hot.pop(key, 0)
        self._hot[key] = nbytes
        if key in self:
            self.remove(key)
            self.add(key)
        while self._hot_bytes > most_bytes:
            old, old_bytes = self._hot.popitem(last=False)
            self._hot_bytes -= old_bytes
            if old in self._favoured:
                self.remove(old)
                self.add(old)


__all__ = ["EvictionOrder"]
