"""Export: one payload per part of the block that a grid chunk has just computed."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from kakeya_ops.engine.leaves import flatten
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.kv.pool import StoredPart


def trace_block(cache: list[Any], layout: KvLayout, *, with_state: bool) -> list[mx.array | None]:
    """The payload of each part as a lazy flat ``uint8`` array, to be evaluated together with the chunk.

    The chunk must have had exactly `layout.block_tokens` tokens: then its rows are the newest ones of every leaf. The
    copy is made inside the graph, so that no view keeps the cache from being appended to in place.
    """
    leaves = flatten(cache)
    return [
        None if part.kind == "state" and not with_state else _trace_part(leaves, part, layout.block_tokens)
        for part in layout.parts
    ]


def _trace_part(leaves: list[Any], part: PartLayout, block_tokens: int) -> mx.array:
    # MLX hands a single array through `concatenate` as it is; `contiguous` copies it out of a larger buffer.
    return mx.contiguous(mx.concatenate([_trace_array(leaves[a.leaf], a, part, block_tokens) for a in part.arrays]))


def _trace_array(leaf: Any, array: ArrayLayout, part: PartLayout, block_tokens: int) -> mx.array:
    value: mx.array
    if part.kind == "state":
        value = leaf.cache[int(array.slot)]
    else:
        buffer = getattr(leaf, array.slot)
        end = leaf.offset if part.kind == "full" else buffer.shape[2]
        value = buffer[:, :, end - block_tokens : end]
    return value.reshape(-1).view(mx.uint8)


def seal_payloads(payloads: list[mx.array | None]) -> tuple[StoredPart | None, ...]:
    """Evaluated payloads as read-only memory, with their checksums. No copy is made."""
    return tuple(None if payload is None else _seal(payload) for payload in payloads)


def _seal(payload: mx.array) -> StoredPart:
    data = memoryview(payload).toreadonly()  # type: ignore[arg-type]
    return StoredPart(data, content_checksum(data))


__all__ = ["seal_payloads", "trace_block"]
