"""The node's KV in memory: payloads by key, under a byte budget; what was used once leaves before what was used again.

The pool knows no model and does no I/O. Its bytes are those of the payloads; a payload that several prompts share is
there once, because its key is the hash of everything before it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from kakeya_ops.errors import PoolFull
from kakeya_ops.kv.eviction import EvictionOrder
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.units import BlockHash

if TYPE_CHECKING:
    from typing_extensions import Buffer


class PartKey(NamedTuple):
    """One payload: the chained hash of its block, and the index of its part in the layout."""

    hash: BlockHash
    part: int


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A payload and its xxh3-128.

    `data` is a read-only, contiguous view of bytes that nothing else will change. It keeps alive whatever it views,
    so it should view a buffer of just its size: only its own bytes are counted.
    """

    data: memoryview
    checksum: bytes

    @classmethod
    def of(cls, data: Buffer) -> StoredPart:
        """The payload in the contiguous buffer `data`, not copied, with its checksum computed."""
        view = memoryview(data).cast("B").toreadonly()
        return cls(view, content_checksum(view))

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return self.data.nbytes


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The pool at one moment. `evictions`, `hits`, `misses` and `rejected` only grow."""

    entries: int
    used_bytes: int
    budget_bytes: int
    pinned_bytes: int
    reserved_bytes: int
    evictions: int
    hits: int
    misses: int
    rejected: int


class Lease:
    """Entries that cannot be evicted until `release`; as a context manager it yields `parts` and releases them."""

    def __init__(self, pool: BlockPool, parts: dict[PartKey, StoredPart]) -> None:
        self._pool = pool
        self._held = True
        self.parts = parts

    def release(self) -> None:
        """Let the entries be evicted again; a second call does nothing."""
        self._pool._unpin(self)

    def __enter__(self) -> dict[PartKey, StoredPart]:
        return self.parts

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Reservation:
    """Bytes of the budget kept free for what is still arriving, until `release` or the end of the ``with``."""

    def __init__(self, pool: BlockPool, nbytes: int) -> None:
        self._pool = pool
        self._left_bytes = nbytes

    @property
    def left_bytes(self) -> int:
        """Bytes that are still reserved."""
        return self._left_bytes

    def put_all(self, items: Mapping[PartKey, StoredPart]) -> bool:
        """`BlockPool.put_all`, paid from this reservation as far as it reaches."""
        return self._pool._store(items, self)

    def release(self) -> None:
        """Give back what is left; a second call does nothing."""
        self._pool._unreserve(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class BlockPool:
    """Payloads by key, from any thread.

    Payloads and reservations together never exceed the budget, except after `resize` to less than what is pinned and
    reserved at that moment; it is then met as soon as leases and reservations end. Wherever several keys are given,
    they are in prefix order, and the head of the chain is evicted last: without it the tail is of no use. What was
    promoted is evicted after all that was not; at most three quarters of the budget are.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._lock = threading.Lock()
        self._budget_bytes = budget_bytes
        self._parts: dict[PartKey, StoredPart] = {}
        self._idle: EvictionOrder[PartKey] = EvictionOrder()
        """What may be evicted."""
        self._leases: dict[PartKey, int] = {}
        """What may not, with its number of leases; the end of the last one counts as its use."""
        self._leaving: set[PartKey] = set()
        """Of these, what goes with its last lease."""
        self._idle_bytes = 0
        self._pinned_bytes = 0
        self._reserved_bytes = 0
        self._evictions = self._hits = self._misses = self._rejected = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all payloads, without reservations."""
        with self._lock:
            return self._used

    @property
    def budget_bytes(self) -> int:
        """The most bytes that payloads and reservations may take."""
        return self._budget_bytes

    def stats(self) -> PoolStats:
        """All numbers at one moment."""
        with self._lock:
            return PoolStats(
                entries=len(self._parts),
                used_bytes=self._used,
                budget_bytes=self._budget_bytes,
                pinned_bytes=self._pinned_bytes,
                reserved_bytes=self._reserved_bytes,
                evictions=self._evictions,
                hits=self._hits,
                misses=self._misses,
                rejected=self._rejected,
            )

    def holds(self, key: PartKey) -> bool:
        """True if `key` is here now; neither a use nor a hit."""
        return key in self._parts  # one look-up needs no lock, and long prefixes take thousands

    def get(self, key: PartKey) -> StoredPart | None:
        """The payload of `key`, which is now the most recently used; None if it is not here."""
        with self._lock:
            part = self._parts.get(key)
            if part is None:
                self._misses += 1
                return None
            self._hits += 1
            self._touch([key])
            return part

    def peek(self, key: PartKey) -> StoredPart | None:
        """The payload of `key` if it is here; neither a use nor a hit, and it keeps nothing from eviction."""
        return self._parts.get(key)

    def put(self, key: PartKey, part: StoredPart) -> bool:
        """Keep `part`; for a key that is here already this is only a use. False (and counted) if it cannot fit."""
        return self._store({key: part}, None)

    def put_all(self, items: Mapping[PartKey, StoredPart]) -> bool:
        """Keep all of `items`, visible at once. False (and counted, and nothing changed) if they cannot all fit."""
        return self._store(items, None)

    def touch_prefix(self, keys: Iterable[PartKey]) -> None:
        """Use each of `keys` that is here, tail first."""
        with self._lock:
            self._touch(keys)

    def promote(self, keys: Iterable[PartKey]) -> None:
        """Take those of `keys` that are here as used more than once: evicted after all that was used only once."""
        with self._lock:
            for key in reversed(tuple(keys)):
                if (part := self._parts.get(key)) is not None:
                    self._idle.favour(key, part.nbytes, self._budget_bytes * 3 // 4)

    def pin(self, keys: Iterable[PartKey]) -> Lease:
        """A lease, in force at once, on those of `keys` that are here; each of the others counts as a miss."""
        with self._lock:
            parts = {}
            for key in dict.fromkeys(keys):
                part = self._pin(key)
                if part is None:
                    self._misses += 1
                else:
                    self._hits += 1
                    parts[key] = part
            return Lease(self, parts)

    def reserve(self, nbytes: int) -> Reservation:
        """Keep `nbytes` free from now on, evicting as needed. Raises `PoolFull`, evicting nothing, if it cannot."""
        with self._lock:
            if nbytes < 0 or not self._make_room(nbytes):
                raise PoolFull(nbytes, self._budget_bytes)
            self._reserved_bytes += nbytes
            return Reservation(self, nbytes)

    def resize(self, budget_bytes: int) -> None:
        """Change the budget, evicting what no longer fits."""
        with self._lock:
            self._budget_bytes = budget_bytes
            self._evict(self._excess_bytes)

    def drop(self, items: Mapping[PartKey, StoredPart]) -> None:
        """Drop these very payloads, as far as they are here: those that are pinned go when nobody has a lease any more.

        Another payload under the same key stays. None is counted as an eviction.
        """
        with self._lock:
            for key, part in items.items():
                if self._parts.get(key) is not part:
                    continue
                if key in self._leases:
                    self._leaving.add(key)
                else:
                    self._forget(key)

    def clear(self) -> None:
        """Drop every payload that is not pinned; these are not counted as evictions."""
        with self._lock:
            while (key := self._idle.pop()) is not None:
                del self._parts[key]
            self._idle_bytes = 0

    @property
    def _used(self) -> int:
        return self._idle_bytes + self._pinned_bytes

    @property
    def _excess_bytes(self) -> int:
        return self._used + self._reserved_bytes - self._budget_bytes

    def _touch(self, keys: Iterable[PartKey]) -> None:
        for key in reversed(tuple(keys)):
            if key in self._idle:
                self._idle.add(key)

    def _store(self, items: Mapping[PartKey, StoredPart], reservation: Reservation | None) -> bool:
        with self._lock:
            fresh = {key: part for key, part in items.items() if key not in self._parts}
            fresh_bytes = sum(part.nbytes for part in fresh.values())
            paid_bytes = min(fresh_bytes, reservation.left_bytes) if reservation else 0
            if not self._make_room(fresh_bytes - paid_bytes, keep=items):
                self._rejected += 1
                return False
            if reservation:
                self._spend(reservation, paid_bytes)
            for key in fresh:
                self._idle.add(key)
            self._idle_bytes += fresh_bytes
            self._parts.update(fresh)  # in one step, also for `holds`
            self._touch(items)
            return True

    def _make_room(self, nbytes: int, keep: Iterable[PartKey] = ()) -> bool:
        """Evict until `nbytes` more fit, but nothing of `keep`; False, and nothing is changed, if they cannot."""
        if nbytes == 0:
            return True
        needed_bytes = self._excess_bytes + nbytes
        kept = [key for key in keep if key in self._idle]
        if needed_bytes > self._idle_bytes - sum(self._parts[key].nbytes for key in kept):
            return False
        for key in kept:
            self._idle.remove(key)
        self._evict(needed_bytes)
        for key in reversed(kept):
            self._idle.add(key)
        return True

    def _evict(self, nbytes: int) -> None:
        while nbytes > 0 and (key := self._idle.pop()) is not None:
            part = self._parts.pop(key)
            self._idle_bytes -= part.nbytes
            self._evictions += 1
            nbytes -= part.nbytes

    def _pin(self, key: PartKey) -> StoredPart | None:
        part = self._parts.get(key)
        if part is None:
            return None
        if key in self._idle:
            self._idle.remove(key)
            self._idle_bytes -= part.nbytes
            self._pinned_bytes += part.nbytes
        self._leases[key] = self._leases.get(key, 0) + 1
        return part

    def _unpin(self, lease: Lease) -> None:
        with self._lock:
            if not lease._held:
                return
            lease._held = False
            for key in reversed(tuple(lease.parts)):
                self._unpin_key(key)
            self._evict(self._excess_bytes)

    def _unpin_key(self, key: PartKey) -> None:
        self._leases[key] -= 1
        if self._leases[key]:
            return
        del self._leases[key]
        self._idle.add(key)
        nbytes = self._parts[key].nbytes
        self._pinned_bytes -= nbytes
        self._idle_bytes += nbytes
        if key in self._leaving:
            self._leaving.remove(key)
            self._forget(key)

    def _forget(self, key: PartKey) -> None:
        self._idle.forget(key)
        self._idle_bytes -= self._parts.pop(key).nbytes

    def _spend(self, reservation: Reservation, nbytes: int) -> None:
        reservation._left_bytes -= nbytes
        self._reserved_bytes -= nbytes

    def _unreserve(self, reservation: Reservation) -> None:
        with self._lock:
            self._spend(reservation, reservation.left_bytes)
            self._evict(self._excess_bytes)


__all__ = ["BlockPool", "Lease", "PartKey", "PoolStats", "Reservation", "StoredPart"]
