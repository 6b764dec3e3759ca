"""The ways between a head and another node, in both directions, as far as links and cards of the two tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kakeya_ops.status.asking import ApiAnswer
from kakeya_ops.status.board import Heard
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
        to_head=_reaches_back(head, name, heard),
        network=_text(link.get("network")),
        security=_text(link.get("security")),
        address=_text(link.get("address")),
        port=port if isinstance(port, int) else None,
        rtt_seconds=_figure(link.get("rtt_seconds")),
        bytes_per_second=_figure(link.get("bytes_per_second")),
        error=error.removeprefix(f"{name}: ") if error else None,
    )


def _reaches_back(head: str, name: str, heard: Mapping[str, Heard]) -> bool | None:
    """Whether the node reaches the head, in its own words; None where it does not answer or says nothing of it."""
    peer = heard[name].peer
    answer = peer.value if peer.error is None else None
    links = answer.card.links if answer and answer.card else ()
    return next((link.error is None for link in links if link.node == head), None)


def _figure(value: object) -> float | None:
    return value if isinstance(value, int | float) and 0 <= value < 2**63 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


__all__ = ["judge_reach"]
