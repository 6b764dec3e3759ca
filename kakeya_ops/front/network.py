"""The fleet as one head sees it, as plain values: the same for the API, the tables and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.fleet import Known
from kakeya_ops.serving.head import HeadService
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.serving.timeline import explain_gain, timeline
from kakeya_ops.wire.cards import Card

_CARD_FIELDS = (
    "version",
    "epoch",
    "instance",
    "healthy",
    "reason",
    "memory",
    "identity",
    "prefill_tokens_per_second",
    "load",
    "pool",
    "free_memory_bytes",
    "counters",
    "issued_at",
)
"""What a card says and nobody here judges."""


def describe_node(known: Known) -> dict[str, Any]:
    """One node: what its card says, how it is reached, and whether its KV is ours; nulls where there is no card."""
    link = known.link
    return _describe_card(known.card) | {
        "node": known.node,
        "role": known.role,
        "reachable": known.reachable,
        "usable": known.usable,
        "conflict": known.conflict,
        "quarantine": known.held.to_json() if known.held else None,
        "identity_match": known.difference is None if known.card else None,
        "identity_difference": known.difference.to_json() if known.difference else None,
        "endpoint": str(link.endpoint) if link else None,
        "link": link.to_json() if link else None,
        "rtt_seconds": link.rtt_seconds if link else None,
    }


def _describe_card(card: Card | None) -> dict[str, Any]:
    if card is None:
        return dict.fromkeys(_CARD_FIELDS) | {"counters": {}}
    return card.model_dump(include=set(_CARD_FIELDS))


def describe_head(head: HeadService, tenant: str) -> dict[str, Any]:
    """The head to whoever asks; `tenant` is the one that the asker's requests are answered for."""
    cache = head.cache
    return _describe_card(head.node.card()) | {
        "node": head.node.id,
        "role": head.node.role,
        "model": head.model_id,
        "identity_document": head.identity.to_json(),
        "tenant": tenant,
        "block_tokens": cache.block_tokens,
        "sink": cache.sink,
        "window": cache.window,
        "policy": head.settings.policy,
        "runtime": head.runtime.to_json(),
    }


def describe_tokens(counters: Counters) -> dict[str, Any]:
    """Where the prompt tokens came from, and the share that nobody computed again, None before the first."""
    local = counters.value(CounterName.TOKENS_COMPUTED_LOCAL)
    remote = counters.value(CounterName.TOKENS_COMPUTED_REMOTE)
    reused = counters.value(CounterName.TOKENS_REUSED)
    total = local + remote + reused
    return {
        "prompt_tokens": int(total),
        "tokens_computed_local": int(local),
        "tokens_computed_remote": int(remote),
        "tokens_reused": int(reused),
        "reused_share": reused / total if total else None,
    }


def describe_summary(counters: Counters, nodes: Sequence[Known]) -> dict[str, Any]:
    """The fleet's totals."""
    return {
        "nodes": len(nodes),
        "reachable": sum(known.reachable for known in nodes),
        "workers": sum(known.role == "worker" for known in nodes),
        "caches": sum(known.role == "cache" for known in nodes),
        "counters": counters.snapshot(),
        "fallbacks_by_reason": counters.by_reason(CounterName.FALLBACKS),
        "failures_by_reason": counters.by_reason(CounterName.REQUESTS_FAILED),
        "by_worker": counters.by_worker(),
        "tokens": describe_tokens(counters),
    }


def describe_request(receipt: Receipt) -> dict[str, Any]:
    """One request, for lists: what was decided, its timeline, and the gain that applied; its receipt has the rest."""
    return {
        "request_id": receipt.request_id,
        "started_at": receipt.started_at,
        "prompt_tokens": receipt.prompt_tokens,
        "cached_tokens": receipt.reused_tokens,
        "decision": receipt.decision.kind,
        "worker": receipt.decision.node,
        "reason": receipt.decision.reason,
        "gain": receipt.gain,
        "gain_sentence": explain_gain(receipt),
        "fallback": receipt.fallback.reason if receipt.fallback else None,
        "times": receipt.times,
        "timeline": [span.to_json() for span in timeline(receipt)],
    }


__all__ = [
    "describe_head",
    "describe_node",
    "describe_request",
    "describe_summary",
    "describe_tokens",
]
