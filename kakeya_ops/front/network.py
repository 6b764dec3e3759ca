"""The fleet as one head sees it, as plain values: the same for the API, the tables and the dashboard."""

from __future__ import annotations

from typing import Any

from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.exchange import Link
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.wire.cards import Card


def describe_node(card: Card, link: Link | None, identity: CacheIdentity, runtime: Runtime) -> dict[str, Any]:
    """One node: what its card says, how it is reached, and whether its KV is ours."""
    difference = find_difference(card, identity, runtime)
    return {
        "node": card.node,
        "role": card.role,
        "version": card.version,
        "epoch": card.epoch,
        "instance": card.instance,
        "healthy": card.healthy,
        "reachable": link is not None and link.last_error is None,
        "identity": card.identity,
        "identity_match": difference is None,
        "identity_difference": difference.to_json() if difference else None,
        "prefill_tokens_per_second": card.prefill_tokens_per_second,
        "load": card.load.model_dump(),
        "pool": card.pool.model_dump(),
        "free_memory_bytes": card.free_memory_bytes,
        "counters": dict(card.counters),
        "issued_at": card.issued_at,
    } | describe_link(link)


def describe_link(link: Link | None) -> dict[str, Any]:
    """The endpoint in use and what was measured on it; every value None where there is none."""
    endpoint = link.endpoint if link else None
    return {
        "endpoint": f"{endpoint.address}:{endpoint.port}" if endpoint else None,
        "network": endpoint.network if endpoint else None,
        "rtt_seconds": link.rtt_seconds if link else None,
        "bytes_per_second": link.bytes_per_second if link else None,
        "last_error": link.last_error if link else None,
    }


def describe_tokens(counters: Counters) -> dict[str, Any]:
    """Where the prompt tokens came from, and the share that was not computed by this head."""
    local = counters.value(CounterName.TOKENS_COMPUTED_LOCAL)
    remote = counters.value(CounterName.TOKENS_COMPUTED_REMOTE)
    reused = counters.value(CounterName.TOKENS_REUSED)
    total = local + remote + reused
    return {
        "prompt_tokens": int(total),
        "tokens_computed_local": int(local),
        "tokens_computed_remote": int(remote),
        "tokens_reused": int(reused),
        "reused_share": reused / total if total else 0.0,
    }


def describe_summary(counters: Counters, cards: tuple[Card, ...]) -> dict[str, Any]:
    """The fleet's totals."""
    return {
        "nodes": len(cards),
        "workers": sum(card.role == "worker" for card in cards),
        "caches": sum(card.role == "cache" for card in cards),
        "counters": counters.snapshot(),
        "fallbacks_by_reason": counters.by_reason(CounterName.FALLBACKS),
        "by_worker": counters.by_worker(),
        "tokens": describe_tokens(counters),
    }


def describe_request(receipt: Receipt) -> dict[str, Any]:
    """One line about a request, for lists; its receipt has the rest."""
    return {
        "request_id": receipt.request_id,
        "started_at": receipt.started_at,
        "prompt_tokens": receipt.prompt_tokens,
        "cached_tokens": receipt.cached_tokens,
        "decision": receipt.decision.kind,
        "worker": receipt.decision.node,
        "reason": receipt.decision.reason,
        "gain": receipt.gain,
        "fallback": receipt.fallback.reason if receipt.fallback else None,
        "times": receipt.times,
    }


__all__ = [
    "describe_link",
    "describe_node",
    "describe_request",
    "describe_summary",
    "describe_tokens",
]
