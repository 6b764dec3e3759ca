"""Which of the nodes that a head knows can prove remote prefill: live workers with the same cache identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kakeya_ops.verify.report import Check

Card = Mapping[str, Any]
CHECK = "live worker"


def find_workers(nodes: Sequence[Card], wanted: str | None = None) -> tuple[Check, tuple[Card, ...]]:
    """The live workers among `nodes`, or only the one called `wanted`, and the check that there is one."""
    asked = [card for card in nodes if wanted is None or card.get("node") == wanted]
    live = tuple(card for card in asked if shortcoming(card) is None)
    if live:
        return Check(CHECK, "ok", "; ".join(_describe(card) for card in live)), live
    if not asked:
        known = ", ".join(str(card.get("node")) for card in nodes) or "none"
        return Check(CHECK, "failed", f"the head knows no node {wanted or 'but itself'}; nodes it knows: {known}"), ()
    return Check(CHECK, "failed", "; ".join(f"{card.get('node')} {shortcoming(card)}" for card in asked)), ()


def shortcoming(card: Card) -> str | None:
    """Why the node of `card` cannot prove remote prefill, or None if it can."""
    if card.get("role") == "cache":
        return "is a cache: it keeps KV and computes none, so it proves nothing"
    if card.get("role") != "worker":
        return f"is a {card.get('role')}, not a worker"
    return _explain_quarantine(card.get("quarantine")) or _fault(card)


def _fault(card: Card) -> str | None:
    """What keeps a worker that is trusted from being asked."""
    if not card.get("reachable"):
        return f"cannot be reached from the head{_explain_link(card)}"
    if not card.get("healthy"):
        return "is not healthy: its engine does not answer"
    if not card.get("identity_match"):
        return _explain_mismatch(card.get("identity_difference"))
    if card.get("conflict"):
        return "shares its id with another running node, and neither is asked"
    if card.get("usable") is False:
        return "is not asked for a while after it failed; try again in a minute"
    return None


def _explain_quarantine(held: Any) -> str | None:
    if not held:
        return None
    return f"is in quarantine: {held.get('reason') if isinstance(held, Mapping) else held}"


def _explain_mismatch(difference: Any) -> str:
    if not isinstance(difference, Mapping):
        return "has another cache identity than the head"
    field, ours, theirs = (difference.get(name) for name in ("field", "ours", "theirs"))
    return f"has another cache identity than the head: {field} is {theirs} there, {ours} on the head"


def _explain_link(card: Card) -> str:
    link = card.get("link")
    error = link.get("last_error") if isinstance(link, Mapping) else None
    prefix = f"{card.get('node')}: "
    return f": {str(error).removeprefix(prefix)}" if error else ""


def _describe(card: Card) -> str:
    rate = card.get("prefill_tokens_per_second")
    speed = f"{rate:.0f} tokens/s" if isinstance(rate, int | float) else "speed not measured yet"
    return f"{card.get('node')}, same cache identity, {speed}"


__all__ = ["CHECK", "Card", "find_workers", "shortcoming"]
