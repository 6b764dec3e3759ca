"""From which prompt length on a worker brings the first token earlier: pure arithmetic on measured times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Side = Literal["at", "at most", "never"]


@dataclass(frozen=True, slots=True)
class Crossover:
    """``at`` `tokens`; ``at most`` `tokens` where the worker helps at the shortest measured length already; ``never``
    where it does not at the longest, which is `tokens` then.
    """

    side: Side
    tokens: float


@dataclass(frozen=True, slots=True)
class Point:
    """First-token seconds of a prompt of so many tokens, here and with the worker."""

    tokens: float
    local_seconds: float
    remote_seconds: float

    @property
    def gain_seconds(self) -> float:
        """How much earlier the worker's first token is; negative if it is later."""
        return self.local_seconds - self.remote_seconds


def find_crossover(points: Sequence[Point]) -> Crossover | None:
    """The length from which on the worker helps at every longer one that was measured; None without points.

    Between two measured lengths the gain is taken to change in a straight line.
    """
    ordered = sorted(points, key=lambda point: point.tokens)
    if not ordered:
        return None
    if ordered[-1].gain_seconds <= 0:
        return Crossover("never", ordered[-1].tokens)
    losing = max((index for index, point in enumerate(ordered) if point.gain_seconds <= 0), default=None)
    if losing is None:
        return Crossover("at most", ordered[0].tokens)
    before, after = ordered[losing], ordered[losing + 1]
    share = -before.gain_seconds / (after.gain_seconds - before.gain_seconds)
    return Crossover("at", before.tokens + share * (after.tokens - before.tokens))


def compare_crossover(measured: Crossover | None, predicted_tokens: int | None) -> float | None:
    """Predicted ÷ measured length; None where either has no length of its own."""
    if measured is None or measured.side != "at" or predicted_tokens is None or measured.tokens <= 0:
        return None
    return predicted_tokens / measured.tokens


__all__ = ["Crossover", "Point", "compare_crossover", "find_crossover"]
