"""Receipts and samples as an honest fleet gives them."""

from __future__ import annotations

from typing import Any

from kakeya_ops.bench.samples import Kind, Sample


def receipt_of(kind: Kind, prompt_tokens: int = 1001, node: str = "worker", **times: float) -> dict[str, Any]:
    """What the head says of a request that went as a sample of `kind` does; blocks have 64 tokens."""
    remote_tokens = (prompt_tokens - 1) // 64 * 64 if kind != "local" else 0
    remote = {
        "node": node,
        "epoch": 7,
        "computed_tokens": remote_tokens if kind == "remote" else 0,
        "payload_bytes": remote_tokens * 1000,
        "worker_receipt": {"computed_tokens": remote_tokens, "compute_seconds": 2.0} if kind == "remote" else None,
    }
    return {
        "prompt_tokens": prompt_tokens,
        "local_pool_tokens": remote_tokens if kind == "hot_hit" else 0,
        "local_computed_tokens": prompt_tokens - remote_tokens,
        "decision": {"kind": "local", "reason": "told so"},
        "remote": remote if kind in ("remote", "remote_hit") else None,
        "fallback": None,
        "times": {"lookup": 0.1, "gathered": 1.0, "prefilled": 3.0, "first_token": 3.1, "transfer": 0.5} | times,
    }


def sample_of(kind: Kind, length: int = 1000, first_token_seconds: float = 1.0, **changes: Any) -> Sample:
    """A sample; remote ones are of the worker's process 7."""
    remote = kind in ("remote", "remote_hit")
    values: dict[str, Any] = {
        "kind": kind,
        "node": "worker" if remote else None,
        "epoch": 7 if remote else None,
        "length": length,
        "prompt_tokens": length + 1,
        "first_token_seconds": first_token_seconds,
        "lookup_seconds": 0.01,
        "computed_tokens": length if kind in ("local", "remote") else 0,
        "compute_seconds": 0.5 if kind in ("local", "remote") else None,
        "payload_bytes": 1_000_000 if remote else 0,
        "transfer_seconds": 0.1 if remote else None,
        "import_seconds": 0.01 if remote else None,
    }
    return Sample(**(values | changes))
