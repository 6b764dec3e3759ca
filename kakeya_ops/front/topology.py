"""The fleet as a graph around the head: who is there, the ways to them, and in which directions these work."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kakeya_ops.serving.fleet import Known


class Directions:
    """Finds out who reaches the head though the head does not reach them. For one thread at a time."""

    def __init__(self) -> None:
        self._last_words: dict[str, float] = {}
        """When the newest card was issued that may not have come from its node itself."""

    def observe(self, nodes: Iterable[Known]) -> frozenset[str]:
        """The nodes that reach the head while it does not reach them, as far as cards tell.

        A card that was issued after the way to its node broke was brought by the node itself, unless another node
        may have passed it on, whether the head reaches that one or not. While a way works, nothing tells of the other
        direction.
        """
        known = list(nodes)
        if len(known) != 1 or known[0].reachable:
            self._last_words.clear()
            return frozenset()
        [one] = known
        issued_at = one.card.issued_at if one.card else 0.0
        # What is there at the first such look may have come before.
        speaks = issued_at > self._last_words.setdefault(one.node, issued_at)
        return frozenset([one.node]) if speaks else frozenset()


def describe_topology(head: str, nodes: Sequence[Known], one_way: Collection[str]) -> dict[str, Any]:
    """Nodes and links; a link goes from the head and says what the way is worth. `one_way` names those nodes that reach
    the head while it does not reach them; whether another one that it does not reach does so is not known.
    """
    return {
        "head": head,
        "nodes": [{"node": head, "role": "head", "state": "here"}, *(_describe_node(one) for one in nodes)],
        "links": [_describe_link(head, one, one.node in one_way) for one in nodes],
    }


def _describe_node(one: Known) -> dict[str, Any]:
    return {"node": one.node, "role": one.role, "state": _state(one)}


def _state(one: Known) -> str:
    """In a word what stands between the head and this node's KV; the first that applies."""
    if one.conflict:
        return "two nodes with this id"
    if one.card is None or not one.reachable:
        return "unreachable"
    if not one.card.healthy:
        return "failing"
    if one.difference is not None:
        return "different cache identity"
    return "usable" if one.usable else "not used"


def _describe_link(head: str, one: Known, one_way: bool) -> dict[str, Any]:
    link = one.link
    return {
        "from": head,
        "to": one.node,
        "up": one.reachable,
        "one_way": one_way or (False if one.reachable else None),
        "network": link.endpoint.network if link else None,
        "endpoint": str(link.endpoint) if link else None,
        "rtt_seconds": link.rtt_seconds if link else None,
        "bytes_per_second": link.bytes_per_second if link else None,
        "error": link.last_error if link else "no endpoint is known",
    }


__all__ = ["Directions", "describe_topology"]
