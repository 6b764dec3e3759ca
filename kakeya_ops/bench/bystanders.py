"""Whether others had work done while the bench measured: then its numbers are of a fleet that was shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_ops.serving.counters import CounterName


@dataclass(frozen=True)
class Census:
    """What the head and the workers have counted so far. `epochs` tell which processes counted it."""

    requests: float
    epochs: Mapping[str, int]
    computed_tokens: Mapping[str, float]


@dataclass(frozen=True)
class OwnWork:
    """What the bench itself had done between two censuses: requests at the head, tokens computed by each worker."""

    requests: int
    computed_tokens: Mapping[str, int]


def take_census(summary: Mapping[str, Any], network: Mapping[str, Any]) -> Census:
    """The census in what ``/v1/network/summary`` and ``/v1/network/nodes`` say."""
    cards = _cards(network)
    counters = summary.get("counters") or {}
    return Census(
        requests=float(counters.get(CounterName.REQUESTS.value) or 0),
        epochs={str(card.get("node")): int(card.get("epoch") or 0) for card in cards},
        computed_tokens={
            str(card.get("node")): float((card.get("counters") or {}).get(CounterName.TOKENS_COMPUTED.value) or 0)
            for card in cards
            if card.get("role") == "worker"
        },
    )


def describe_bystanders(before: Census, after: Census, own: OwnWork, live: Iterable[int]) -> tuple[str, ...]:
    """What others did meanwhile, a sentence each. `live` are counts of others' requests under way at the head."""
    return (*_restarts(before, after), *_requests(before, after, own, max(live, default=0)), *_jobs(before, after, own))


def _restarts(before: Census, after: Census) -> Sequence[str]:
    changed = [node for node, epoch in after.epochs.items() if before.epochs.get(node, epoch) != epoch]
    return [f"{node} was restarted; what was measured of it before is left out" for node in sorted(changed)]


def _requests(before: Census, after: Census, own: OwnWork, live: int) -> Sequence[str]:
    others = round(after.requests - before.requests) - own.requests
    if others > 0:
        return [f"the head took {others} requests of others meanwhile"]
    return [f"{live} requests of others were under way at the head"] if live > 0 else []


def _jobs(before: Census, after: Census, own: OwnWork) -> Iterable[str]:
    for node, computed in after.computed_tokens.items():
        if before.epochs.get(node) != after.epochs.get(node):
            continue
        others = computed - before.computed_tokens.get(node, 0.0) - own.computed_tokens.get(node, 0)
        if others > 0:
            yield f"{node} computed {others:.0f} tokens for others meanwhile"


def _cards(network: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    head = network.get("head")
    nodes = network.get("nodes")
    cards = [*([head] if head else []), *(nodes if isinstance(nodes, list) else [])]
    return [card for card in cards if isinstance(card, Mapping) and card.get("epoch") is not None]


__all__ = ["Census", "OwnWork", "describe_bystanders", "take_census"]
