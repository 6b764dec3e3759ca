"""What the cards of one node tell beyond the last of them: its speed now, and that it was restarted meanwhile."""

from __future__ import annotations

from collections import deque

from kakeya_ops.serving.counters import CounterName
from kakeya_ops.wire.cards import Card

KEPT = 30
"""Values of a history: half a minute at a card a second."""
_LEAST_SECONDS = 0.5
"""Two cards nearer to each other than this tell no speed."""


class History:
    """Takes every card of one node, in any order; those of an earlier moment or process are no news."""

    def __init__(self) -> None:
        self._last: Card | None = None
        self._rates: deque[float] = deque(maxlen=KEPT)
        self.restarts = 0
        self.restarted_at: float | None = None

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second that its process prefilled between one card and the next, the newest last."""
        return tuple(self._rates)

    def take(self, card: Card, at: float, *, own: bool = True) -> bool:
        """Heed a card that was seen at `at`, in monotonic seconds; whether it is the newest.

        `own` is whether the node itself showed it: then it counts, whatever clocks say.
        """
        last = self._last
        if last is None:
            self._last = card
            return True
        if card.instance != last.instance:
            return (own or card.epoch > last.epoch) and self._begin_anew(card, at)
        seconds = card.issued_at - last.issued_at
        if own and seconds < 0:  # its clock was set back, or it said so by a slower way
            self._last = card
            return True
        if seconds < _LEAST_SECONDS:
            return seconds >= 0
        self._rates.append(max(prefilled_tokens(card) - prefilled_tokens(last), 0) / seconds)
        self._last = card
        return True

    def _begin_anew(self, card: Card, at: float) -> bool:
        """Counters of two processes have nothing to do with each other, so no speed is told across a restart."""
        self._last, self.restarts, self.restarted_at = card, self.restarts + 1, at
        self._rates.clear()
        return True


def prefilled_tokens(card: Card) -> float:
    """Prompt tokens that the process of `card` has computed, for itself or for others."""
    names = (CounterName.TOKENS_COMPUTED, CounterName.TOKENS_COMPUTED_LOCAL)
    return float(sum(card.counters.get(name.value, 0) for name in names))


__all__ = ["KEPT", "History", "prefilled_tokens"]
