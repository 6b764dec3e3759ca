"""Cards that say of a node what is not so, as a drill tells them to the head, and how that is taken back."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.drill.catalogue import Claim
from kakeya_ops.wire.cards import Card
from kakeya_ops.wire.signing import new_nonce

CLAIM_SECONDS = 10.0
"""How long a card that is made up counts when nobody takes it back, until the node's own are newer."""
_LIFE_SECONDS = 10.0
"""Two cards of one instance so far apart tell that it lives."""
_LEAST_SECONDS = 0.001
"""By which a card is newer than another."""


@dataclass(frozen=True)
class MadeUp:
    """What is `told` of a node, and the card that ends it when it is told afterwards."""

    told: tuple[Card, ...]
    taken_back: Card


def make_up(card: Card, claim: Claim) -> MadeUp:
    """Cards that claim something of the node of `card`, which is its own and true."""
    if claim == "duplicate":
        return _make_rival(card)
    later = card.issued_at + CLAIM_SECONDS
    changes: dict[Claim, dict[str, object]] = {
        "unhealthy": {"healthy": False, "reason": "a drill says so"},
        "other identity": {"identity": "00" * 32, "identity_document": None},
        "other arithmetic": {"runtime": {**(card.runtime or {}), "mlx": "0.0.0"}},
        "expired": {"ttl_seconds": 0.0},
    }
    told = card.model_copy(update={"issued_at": later, **changes[claim]})
    return MadeUp((told,), card.model_copy(update={"issued_at": later + _LEAST_SECONDS}))


def _make_rival(card: Card) -> MadeUp:
    """Of an older epoch: it must not take the place of the real one. It is gone with a card that has expired."""
    rival = card.model_copy(update={"instance": new_nonce(), "epoch": 1})
    alive = rival.model_copy(update={"issued_at": card.issued_at + _LIFE_SECONDS})
    gone = alive.model_copy(update={"issued_at": alive.issued_at + _LEAST_SECONDS, "ttl_seconds": 0.0})
    return MadeUp((rival, alive), gone)


__all__ = ["CLAIM_SECONDS", "MadeUp", "make_up"]
