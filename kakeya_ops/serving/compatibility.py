"""Whether another node's KV is this node's KV, judged from its card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kakeya_ops.kv.identity import WIRE_VERSION, CacheIdentity, Runtime
from kakeya_ops.wire.cards import Card


@dataclass(frozen=True)
class Difference:
    """The first field in which two nodes differ, with both values."""

    field: str
    ours: object
    theirs: object

    def to_json(self) -> dict[str, Any]:
        """A plain value; values that are long or nested are shortened to text."""
        return {"field": self.field, "ours": _brief(self.ours), "theirs": _brief(self.theirs)}


def find_difference(card: Card, identity: CacheIdentity, runtime: Runtime) -> Difference | None:
    """Why the KV of `card`'s node cannot be used here, or None when it can be.

    The wire version is compared first, then the cache identity; a cache peer computes nothing, so its runtime does not
    matter.
    """
    if card.wire != WIRE_VERSION:
        return Difference("wire", WIRE_VERSION, card.wire)
    if card.identity != identity.digest:
        return find_identity_difference(identity, card.identity, card)
    return None if card.role == "cache" else _runtime_difference(card, runtime)


def find_identity_difference(identity: CacheIdentity, theirs: str | None, card: Card | None) -> Difference:
    """In what the identity with another digest, `theirs`, differs: a field, where `card` has its document."""
    whole = Difference("identity", identity.digest, theirs)
    if card is None or card.identity != theirs or card.identity_document is None:
        return whole
    try:
        found = identity.first_difference(CacheIdentity.from_json(card.identity_document))
    except (KeyError, TypeError, ValueError):
        return whole
    return Difference(*found) if found else whole


def _runtime_difference(card: Card, runtime: Runtime) -> Difference | None:
    try:
        found = runtime.first_difference(Runtime.from_json(card.runtime or {}))
    except TypeError:  # of another version of this program, perhaps
        return Difference("runtime", runtime.to_json(), card.runtime)
    return Difference(f"runtime.{found[0]}", found[1], found[2]) if found else None


def _brief(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


__all__ = ["Difference", "find_difference", "find_identity_difference"]
