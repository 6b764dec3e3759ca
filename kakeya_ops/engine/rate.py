"""Running estimates of prefill speed: a plain rate, and how it falls with the place in the prompt."""

from __future__ import annotations

import statistics
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

_KEPT = 33
_KEPT_EACH = 17
_KEPT_NEAR = 9
_NEAR_PLACE = 1024
"""Chunks that begin within their prompt's first few hundred tokens hardly feel attention."""
_SHORTEST_SECONDS = 1e-9
_LEAST_SHARE = 0.1
"""Of the fastest measured time for a token, what at least does not depend on its place."""


@dataclass(frozen=True)
class PrefillCurve:
    """What a prefill takes: ``seconds_per_token * n + seconds_per_square * n**2`` for n tokens from the start.

    The second term is attention's: a token looks at all those before it.
    """

    seconds_per_token: float
    seconds_per_square: float = 0.0

    def seconds(self, start: int, end: int) -> float:
        """Of the tokens from number `start` up to `end` (exclusive), those before `start` in the cache already."""
        return self.seconds_per_token * (end - start) + self.seconds_per_square * (end * end - start * start)

    def seconds_at(self, place: int) -> float:
        """Of each token of a chunk whose first and last position have the sum `place`."""
        return self.seconds_per_token + self.seconds_per_square * place

    def scaled(self, factor: float) -> PrefillCurve:
        """The same shape, `factor` times as slow."""
        return PrefillCurve(self.seconds_per_token * factor, self.seconds_per_square * factor)


@dataclass(frozen=True)
class _Sample:
    """One chunk: `place` is the sum of its first and last position, `seconds` what each of its tokens took.

    `share` is that in terms of what a token near the start of a prompt took at the time.
    """

    place: int
    seconds: float
    share: float


class PrefillRate:
    """Medians of the last chunks, so that one disturbed chunk moves nothing. Thread-safe.

    What a machine is busy with changes soon, what attention costs does not. So each chunk is compared with those near
    the start of a prompt at about the same time; that makes the curve's shape, and the last chunks of all its scale.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: deque[_Sample] = deque(maxlen=_KEPT)
        self._near: deque[float] = deque(maxlen=_KEPT_NEAR)
        self._by_length: dict[int, deque[_Sample]] = {}
        self._curve: PrefillCurve | None = None

    def observe(self, tokens: int, seconds: float, position: int = 0) -> None:
        """Record that `tokens` from `position` of their prompt on took `seconds`."""
        place, each = 2 * position + tokens, max(seconds / tokens, _SHORTEST_SECONDS)
        with self._lock:
            if place <= _NEAR_PLACE or not self._near:
                self._near.append(each)
            sample = _Sample(place, each, each / statistics.median(self._near))
            self._last.append(sample)
            self._by_length.setdefault(place.bit_length(), deque(maxlen=_KEPT_EACH)).append(sample)
            self._curve = None

    @property
    def tokens_per_second(self) -> float | None:
        """The median rate of the last chunks, wherever they were, or None before anything was measured."""
        with self._lock:
            return 1 / statistics.median(sample.seconds for sample in self._last) if self._last else None

    @property
    def curve(self) -> PrefillCurve | None:
        """The estimate by length, or None before anything was measured."""
        with self._lock:
            if self._curve is None and self._last:
                shape = _fit(self._by_length.values())
                newest = tuple(self._last)[-_KEPT_NEAR:]
                self._curve = shape.scaled(statistics.median(s.seconds / shape.seconds_at(s.place) for s in newest))
            return self._curve


def _fit(groups: Iterable[Sequence[_Sample]]) -> PrefillCurve:
    """A line through the groups' medians, by the weighted median of the slopes between them (Theil and Sen).

    A token at p takes ``a + 2 * b * p``, so that the line over the places has the slope b and the intercept a.
    """
    points = [
        (statistics.median(s.place for s in group), statistics.median(s.share for s in group), len(group))
        for group in groups
    ]
    pairs = [sorted(pair) for pair in combinations(points, 2)]
    slopes = [
        ((second[1] - first[1]) / (second[0] - first[0]), (second[0] - first[0]) * min(first[2], second[2]))
        for first, second in pairs
        if second[0] > first[0]
    ]
    slope = max(_weighted_median(slopes), 0.0) if slopes else 0.0
    intercept = statistics.median(share - slope * place for place, share, _ in points)
    least = _LEAST_SHARE * min(share for _, share, _ in points)
    return PrefillCurve(max(intercept, least), slope)


def _weighted_median(values: Iterable[tuple[float, float]]) -> float:
    """The value at which half of the weight is reached, of pairs of value and weight."""
    ordered = sorted(values)
    half, reached = sum(weight for _, weight in ordered) / 2, 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return ordered[-1][0]


__all__ = ["PrefillCurve", "PrefillRate"]
