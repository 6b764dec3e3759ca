"""Short histories for charts: one sample a period, the oldest forgotten, and quantiles over the last minute."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEPT_SAMPLES = 900
_WINDOW_SECONDS = 60.0
_MOST_MEASUREMENTS = 8192
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Latencies:
    """Measurements of the last `window_seconds`, at most so many. For one thread at a time."""

    def __init__(self, window_seconds: float = _WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._measured: deque[tuple[float, float]] = deque(maxlen=_MOST_MEASUREMENTS)

    def add(self, now: float, seconds: float) -> None:
        """Take a measurement that was made at `now`, monotonic seconds."""
        self._measured.append((now, seconds))

    def quantiles(self, now: float) -> dict[str, float | None]:
        """The `QUANTILES`, by nearest rank; None each when nothing was measured lately."""
        while self._measured and self._measured[0][0] < now - self._window_seconds:
            self._measured.popleft()
        ordered = sorted(seconds for _, seconds in self._measured)
        return {name: _rank(ordered, share) for name, share in QUANTILES.items()}


def _rank(ordered: Sequence[float], share: float) -> float | None:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


Values = Mapping[str, float | None]


@dataclass(frozen=True)
class Sample:
    """What was measured in the period before `at` (Unix time), of the fleet and of each node; None is unknown."""

    at: float
    values: Values
    nodes: Mapping[str, Values] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return {"at": self.at, **self.values, "nodes": {name: dict(values) for name, values in self.nodes.items()}}


class Series:
    """The last samples. Written by one thread, read by any."""

    def __init__(self, kept: int = KEPT_SAMPLES) -> None:
        self._samples: deque[Sample] = deque(maxlen=kept)

    def add(self, sample: Sample) -> None:
        """Keep `sample`, in place of the oldest when there are too many."""
        self._samples.append(sample)

    @property
    def newest(self) -> Sample | None:
        """The last sample, None before the first."""
        return self._samples[-1] if self._samples else None

    def last(self, count: int = KEPT_SAMPLES) -> list[Sample]:
        """The newest `count` samples, oldest first."""
        samples = self._samples.copy()
        return list(samples)[-count:] if count > 0 else []

    def columns(self, count: int = KEPT_SAMPLES) -> dict[str, Any]:
        """The newest samples as one list for each value, all as long as ``at``, with nulls for what is unknown."""
        samples = self.last(count)
        return {
            "at": [sample.at for sample in samples],
            "values": _columns([sample.values for sample in samples]),
            "nodes": {name: _columns([s.nodes.get(name, {}) for s in samples]) for name in _names(samples)},
        }


def _names(samples: Sequence[Sample]) -> list[str]:
    return sorted({name for sample in samples for name in sample.nodes})


def _columns(rows: Sequence[Values]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


__all__ = ["KEPT_SAMPLES", "QUANTILES", "Latencies", "Sample", "Series"]
