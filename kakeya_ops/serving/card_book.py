"""What a node knows of the others: the newest card of each, and two nodes that claim one id.

Cards travel from node to node, so an old one may come late, from anybody, and again. Per node the one with the highest
``(epoch, issued_at)`` counts, which are times of its own clock and are compared with nothing else. How long it counts
is measured here, from when it was first seen: other clocks may be wrong by as much as they like, and passing a card
round does not make it younger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kakeya_ops.errors import KakeyaError
from kakeya_ops.wire.cards import Card

MOST_NODES = 256
CONFLICT_SECONDS = 30.0
"""How long a conflict is told at most after it was last seen; no longer than the card that showed it would count."""
ALIVE_SECONDS = 5.0
"""An instance whose cards go on for so long after another has taken its place is alive. Those of one that has ended may
still come from nodes that heard of it at different times, but these were issued within about one round of exchanges."""
_MOST_RIVALS = 4


class DuplicateNode(KakeyaError):
    """Two running nodes have one id."""

    def __init__(self, conflict: Conflict) -> None:
        first, second = conflict.claims
        super().__init__(
            f"two nodes call themselves {conflict.node}: {first} and {second}",
            hint="give each host of the inventory its own name, and start one server on each",
        )
        self.conflict = conflict


@dataclass(frozen=True)
class Claim:
    """One instance that calls itself by a node's id, and where it listens."""

    instance: str
    address: str

    def __str__(self) -> str:
        return f"instance {self.instance[:8]} at {self.address}"


@dataclass(frozen=True)
class Conflict:
    """Two instances that are alive and have one id."""

    node: str
    claims: tuple[Claim, Claim]


@dataclass
class _Rival:
    """An instance whose card does not count, and when the first card was issued by which it could be told apart."""

    card: Card
    first_issued_at: float


@dataclass
class _Entry:
    card: Card
    seen_at: float
    rivals: dict[str, _Rival] = field(default_factory=dict)
    conflict: Conflict | None = None
    conflict_until: float = 0.0


class CardBook:
    """Thread-safe. `own` makes this node's card, which nothing can replace; `clock` gives monotonic seconds."""

    def __init__(self, own: Callable[[], Card], clock: Callable[[], float]) -> None:
        self._own = own
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def merge(self, cards: Iterable[Card]) -> None:
        """Take over what is news in `cards`."""
        own, now = self._own(), self._clock()
        with self._lock:
            if own.node not in self._entries:
                self._entries[own.node] = _Entry(own, now)
            self._entries[own.node].card = own
            for card in cards:
                self._merge(card, own, now)

    def card(self, node: str) -> Card | None:
        """The card of `node`, or None when there is none that counts any more. It may be one of several claims."""
        return self.fresh().get(node)

    def fresh(self) -> dict[str, Card]:
        """The cards that count now, this node's own among them."""
        own, now = self._own(), self._clock()
        with self._lock:
            cards = {node: e.card for node, e in self._entries.items() if now < e.seen_at + e.card.ttl_seconds}
        return cards | {own.node: own}

    def conflicts(self) -> tuple[Conflict, ...]:
        """The ids that two living nodes claim."""
        now = self._clock()
        with self._lock:
            return tuple(
                entry.conflict for entry in self._entries.values() if entry.conflict and now < entry.conflict_until
            )

    def check(self, node: str) -> None:
        """Raise `DuplicateNode`, naming both, when two living nodes claim the id `node`."""
        for conflict in self.conflicts():
            if conflict.node == node:
                raise DuplicateNode(conflict)

    def _merge(self, card: Card, own: Card, now: float) -> None:
        entry = self._entries.get(card.node)
        if entry is None:
            if len(self._entries) < MOST_NODES:
                self._entries[card.node] = _Entry(card, now)
            return
        if card.instance != entry.card.instance:
            self._compare(entry, card, own, now)
        elif card.issued_at > entry.card.issued_at and card.node != own.node:
            entry.card, entry.seen_at = card, now

    def _compare(self, entry: _Entry, card: Card, own: Card, now: float) -> None:
        """Heed a card of another instance than the one that counts."""
        alive = _shows_life(entry, card)
        fresh = card.node == own.node or now < entry.seen_at + entry.card.ttl_seconds
        if alive and fresh:
            entry.conflict = Conflict(card.node, (_claim(entry.card), _claim(card)))
            entry.conflict_until = now + min(card.ttl_seconds, CONFLICT_SECONDS)
        newer = (card.epoch, card.issued_at) > (entry.card.epoch, entry.card.issued_at)
        # Also an instance that seems older counts when the other is gone: a clock may have been set back.
        if card.node != own.node and (newer or (alive and not fresh)):
            _remember(entry, entry.card)
            entry.rivals.pop(card.instance, None)
            entry.card, entry.seen_at = card, now


def _shows_life(entry: _Entry, card: Card) -> bool:
    """Whether `card` proves that its instance lives beside, or after, the one that counts."""
    rival = entry.rivals.get(card.instance)
    if rival is None:
        _remember(entry, card)
        return False
    if card.issued_at <= rival.card.issued_at:
        return False
    rival.card = card
    return card.issued_at - rival.first_issued_at > ALIVE_SECONDS


def _remember(entry: _Entry, card: Card) -> None:
    entry.rivals[card.instance] = _Rival(card, card.issued_at)
    while len(entry.rivals) > _MOST_RIVALS:
        del entry.rivals[next(iter(entry.rivals))]


def _claim(card: Card) -> Claim:
    addresses = (f"{endpoint.address}:{endpoint.port}" for endpoint in card.endpoints)
    return Claim(card.instance, ", ".join(addresses) or "an unknown address")


__all__ = ["ALIVE_SECONDS", "CONFLICT_SECONDS", "MOST_NODES", "CardBook", "Claim", "Conflict", "DuplicateNode"]
