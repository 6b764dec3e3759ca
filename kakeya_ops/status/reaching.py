"""The ways between a head and another node, in both directions, as far as links and cards of the two tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kakeya_ops.status.asking import ApiAnswer, PeerAnswer
from kakeya_ops.status.board import Heard
from kakeya_ops.status.life import LIVELY_SECONDS
from kakeya_ops.status.value import Reach


def judge_reach(head: str, api: ApiAnswer, name: str, heard: Mapping[str, Heard]) -> Reach:
    """The ways between `head`, which says `api`, and the node called `name`."""
    known = api.nodes.get(name) or {}
    told = known.get("link")
    link: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    to_node, error, port = known.get("reachable") is True, _text(link.get("last_error")), link.get("port")
    return Reach(
        head=head,
        to_node=to_node,
        to_head=None if to_node else _reaches_back(head, known, name, heard),
        network=_text(link.get("network")),
        address=_text(link.get("address")),
        port=port if isinstance(port, int) else None,
        rtt_seconds=_figure(link.get("rtt_seconds")),
        bytes_per_second=_figure(link.get("bytes_per_second")),
        error=error.removeprefix(f"{name}: ") if error else None,
    )


def _reaches_back(head: str, known: Mapping[str, Any], name: str, heard: Mapping[str, Heard]) -> bool | None:
    """Whether a node that the head does not reach reaches the head: then each still gets new cards of the other.

    Not known where a third node may carry them, or where the two cannot be asked.
    """
    ours, theirs = _answer(heard, head), _answer(heard, name)
    third = any(_answer(heard, other) for other in heard if other not in (head, name))
    if third or ours is None or theirs is None or ours.card is None or theirs.card is None:
        return None
    copies = [(theirs.card, _figure(known.get("issued_at")))]
    copies += [(ours.card, card.issued_at) for card in theirs.known if card.node == head]
    return any(copied is not None and own.issued_at - copied < LIVELY_SECONDS for own, copied in copies)


def _answer(heard: Mapping[str, Heard], name: str) -> PeerAnswer | None:
    """What the node says from here, if it does."""
    peer = heard[name].peer
    return peer.value if peer.error is None else None


def _figure(value: object) -> float | None:
    return value if isinstance(value, int | float) and 0 <= value < 2**63 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


__all__ = ["judge_reach"]
