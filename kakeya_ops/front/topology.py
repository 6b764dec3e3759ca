"""The fleet as a graph around the head: who is there, the ways to them, and in which directions these work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kakeya_ops.serving.fleet import Known
from kakeya_ops.wire.cards import Card


class Directions:
    """Finds out who reaches the head though the head does not reach them. For one thread at a time."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._last_words: dict[str, float] = {}
        """When the newest card was issued that may be from before the way to its node broke."""

    def observe(self, nodes: Iterable[Known]) -> frozenset[str]:
        """The nodes that say, on a card that is newer than the break, that they reach the head.

        Whoever brought the card, its node is alive then, and knows its own way.
        """
        return frozenset(one.node for one in nodes if self._speaks(one) and reaches(one.card, self._head))

    def _speaks(self, one: Known) -> bool:
        if one.reachable:
            self._last_words.pop(one.node, None)
            return False
        issued_at = one.card.issued_at if one.card else 0.0
        # What is there at the first such look may have come before.
        return issued_at > self._last_words.setdefault(one.node, issued_at)


def reaches(card: Card | None, other: str) -> bool | None:
    """Whether the card's process reaches the node called `other`, None where the card does not say."""
    links = card.links if card else ()
    return next((link.error is None for link in links if link.node == other), None)


def describe_topology(head: str, nodes: Sequence[Known], one_way: Collection[str]) -> dict[str, Any]:
    """Nodes and links; a link goes from the head and says what the way is worth. `one_way` names those nodes that reach
    the head while it does not reach them. A link is one way, too, whose node says that it does not reach the head.
    """
    return {
        "head": head,
        "nodes": [{"node": head, "role": "head", "state": "here"}, *(_describe_node(one) for one in nodes)],
        "links": [_describe_link(head, one, _is_one_way(head, one, one_way)) for one in nodes],
    }


def _is_one_way(head: str, one: Known, one_way: Collection[str]) -> bool | None:
    if not one.reachable:
        return one.node in one_way or None
    back = reaches(one.card, head)
    return None if back is None else not back


def _describe_node(one: Known) -> dict[str, Any]:
    return {"node": one.node, "role": one.role, "state": _state(one)}


def _state(one: Known) -> str:
    """In a word what stands between the head and this node's KV; the first that applies."""
    if one.conflict:
        return "two nodes with this id"
    if one.held is not None:
        return "in quarantine"
    if one.card is None or not one.reachable:
        return "unreachable"
    if not one.card.healthy:
        return "failing"
    if one.difference is not None:
        return "different cache identity"
    return "usable" if one.usable else "not used"


def _describe_link(head: str, one: Known, one_way: bool | None) -> dict[str, Any]:
    link = one.link
    return {
        "from": head,
        "to": one.node,
        "up": one.reachable,
        "one_way": one_way,
        "network": link.endpoint.network if link else None,
        "endpoint": str(link.endpoint) if link else None,
        "security": link.endpoint.security if link else None,
        "rtt_seconds": link.rtt_seconds if link else None,
        "bytes_per_second": link.bytes_per_second if link else None,
        "error": link.last_error if link else "no endpoint is known",
    }


__all__ = ["Directions", "describe_topology", "reaches"]
