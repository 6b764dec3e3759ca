"""The KV layout of a model, read off its own cache after a chunk that is traced but never computed."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.leaves import arrays_of, flatten, make_cache, remembered
from kakeya_ops.errors import UnsupportedModel
from kakeya_ops.kv.layout import ITEM_BYTES, ArrayLayout, KvLayout, PartLayout


def probe_layout(model: Any, settings: CacheSettings) -> KvLayout:
    """The layout of `model`'s KV under `settings`.

    MLX knows shapes and types of a graph before evaluating it, so this reads no weights and works on a model that was
    loaded lazily. Raises `UnsupportedModel` for a cache that cannot be carried exactly.
    """
    cache = make_cache(model, settings)
    model(mx.zeros((1, settings.block_tokens), mx.int32), cache=cache)
    leaves = flatten(cache)
    grouped: dict[tuple[int, int | None] | None, list[ArrayLayout]] = {}
    for index, leaf in enumerate(leaves):
        grouped.setdefault(remembered(leaf), []).extend(_describe(index, leaf, settings.block_tokens))
    parts = tuple(_make_part(memory, arrays) for memory, arrays in grouped.items() if arrays)
    if not parts:
        raise UnsupportedModel("this model keeps no KV and no state that could be carried")
    return KvLayout(settings.block_tokens, tuple(type(leaf).__name__ for leaf in leaves), parts)


def _make_part(memory: tuple[int, int | None] | None, arrays: list[ArrayLayout]) -> PartLayout:
    if memory is None:
        return PartLayout("state", tuple(arrays))
    sink, window = memory
    return PartLayout("full" if window is None else "window", tuple(arrays), sink, window)


def _describe(index: int, leaf: Any, block_tokens: int) -> list[ArrayLayout]:
    described = []
    for slot, array in arrays_of(leaf):
        dtype = str(array.dtype).removeprefix("mlx.core.")
        if dtype not in ITEM_BYTES:
            raise UnsupportedModel(f"cache leaf {index} ({type(leaf).__name__}) holds {dtype}, which is not carried")
        is_state = remembered(leaf) is None
        shape = array.shape[1:] if is_state else (array.shape[1], block_tokens, array.shape[3])
        if min(shape, default=0) < 1:
            raise UnsupportedModel(f"cache leaf {index} ({type(leaf).__name__}) holds arrays of width 0")
        described.append(ArrayLayout(index, slot, dtype, tuple(shape)))
    return described


__all__ = ["probe_layout"]
