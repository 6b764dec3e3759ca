"""Who delivers what of one prefix that several peers hold: pure bookkeeping, without time, threads or sockets.

Each peer takes a piece when it has nothing to do: half of its share, by the rates that are known, of what nobody has
taken yet. So pieces grow smaller towards the end, and a wrong rate costs no more than the last of them. When all is
taken, the idle ones also fetch what others have not delivered yet, the last first: whoever dies or stalls holds up
nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kakeya_ops.kv.layout import KvLayout

Place = tuple[int, int]
"""``(block, part)``."""

LEAST_PIECE_BYTES = 1024 * 1024
"""A smaller piece is not worth a request of its own."""


@dataclass
class _Holder:
    can: set[Place]
    bytes_per_second: float
    taken: list[Place] = field(default_factory=list)
    repeated: set[Place] = field(default_factory=set)


class Division:
    """Of `wanted`, in their order. Not thread-safe."""

    def __init__(self, layout: KvLayout, wanted: Sequence[Place]) -> None:
        self._layout = layout
        self._order = {place: index for index, place in enumerate(wanted)}
        self._missing = set(wanted)
        self._free = dict.fromkeys(wanted)
        self._holders: dict[str, _Holder] = {}

    @property
    def complete(self) -> bool:
        """Whether all has arrived."""
        return not self._missing

    def join(self, node: str, can: Iterable[Place], bytes_per_second: float) -> None:
        """Let `node` take part, which can deliver `can` at about so many bytes a second."""
        self._holders[node] = _Holder(set(can), bytes_per_second)

    def take(self, node: str) -> list[Place]:
        """What `node` is to deliver next, in order; nothing while there is nothing for it."""
        holder = self._holders.get(node)
        if holder is None:
            return []
        possible = [place for place in self._free if place in holder.can]
        piece = self._cut(possible, holder) if possible else self._repeat(holder)
        for place in piece:
            self._free.pop(place, None)
        holder.taken = list(piece)
        return piece

    def arrived(self, place: Place) -> None:
        """`place` is here, whoever sent it."""
        self._missing.discard(place)
        self._free.pop(place, None)

    def ended(self, node: str, *, lost: bool) -> None:
        """`node` delivers no more of what it took. What it left out it does not have; when `lost`, nothing at all."""
        holder = self._holders[node]
        if lost:
            del self._holders[node]
        holder.can -= set(holder.taken)
        left, holder.taken = holder.taken, []
        elsewhere = {place for other in self._holders.values() for place in other.taken}
        freed = [place for place in left if place in self._missing and place not in elsewhere]
        self._free = dict.fromkeys(sorted([*self._free, *freed], key=self._order.__getitem__))

    def hopeless(self) -> bool:
        """Whether something is missing that nobody delivers, or could."""
        hoped = {place for holder in self._holders.values() for place in (*holder.taken, *holder.can)}
        return not self._missing <= hoped

    def _cut(self, possible: list[Place], holder: _Holder) -> list[Place]:
        others = [other for other in self._holders.values() if other is not holder]
        if not any(place in other.can for other in others for place in possible):
            return possible
        share = holder.bytes_per_second / (holder.bytes_per_second + sum(other.bytes_per_second for other in others))
        most_bytes = max(sum(map(self._nbytes, possible)) * share / 2, LEAST_PIECE_BYTES)
        piece: list[Place] = []
        for place in possible:
            most_bytes -= self._nbytes(place)
            if piece and most_bytes < 0:
                break
            piece.append(place)
        return piece

    def _repeat(self, holder: _Holder) -> list[Place]:
        """The last half of what another has not delivered yet and would need longest for."""
        found: list[Place] = []
        longest = 0.0
        for other in self._holders.values():
            left = [p for p in other.taken if p in self._missing and p in holder.can and p not in holder.repeated]
            seconds = sum(map(self._nbytes, left)) / other.bytes_per_second
            if other is not holder and seconds > longest:
                found, longest = left, seconds
        piece = found[len(found) // 2 :]
        holder.repeated |= set(piece)
        return piece

    def _nbytes(self, place: Place) -> int:
        return self._layout.parts[place[1]].nbytes


__all__ = ["LEAST_PIECE_BYTES", "Division", "Place"]
