"""The leaves of a cache list: what they are called, what they keep, and how a fresh list is made."""

from __future__ import annotations

from typing import Any

from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache, make_prompt_cache

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.sink_window import SinkWindowKVCache, apply_window
from kakeya_ops.errors import UnsupportedModel


def make_cache(model: Any, settings: CacheSettings) -> list[Any]:
    """An empty cache list for one sequence of `model`, with the inventory's sink + window where attention is full.

    Raises `UnsupportedModel` for a cache class that cannot be carried exactly.
    """
    return apply_window(
        make_prompt_cache(model), settings.sink, settings.window, model_type=getattr(model, "model_type", "")
    )


def flatten(cache: list[Any]) -> list[Any]:
    """The leaves of a cache list in a fixed order, nested lists opened."""
    leaves: list[Any] = []
    for entry in cache:
        leaves.extend(flatten(list(entry.caches)) if isinstance(entry, CacheList) else [entry])
    return leaves


def remembered(leaf: Any) -> tuple[int, int | None] | None:
    """``(sink, window)`` rows that an attention leaf keeps, a window of None being all; None for a state leaf.

    Raises `UnsupportedModel` for anything else.
    """
    if isinstance(leaf, SinkWindowKVCache):
        return leaf.keep, leaf.max_size - leaf.keep
    if type(leaf) is RotatingKVCache and leaf.keep == 0:
        return 0, leaf.max_size
    if type(leaf) is KVCache:
        return 0, None
    if type(leaf) is ArraysCache:
        return None
    raise UnsupportedModel(
        f"a layer keeps its KV in {type(leaf).__name__}, which cannot be carried exactly",
        hint="this model cannot be served by a fleet with remote prefill",
    )


def arrays_of(leaf: Any) -> list[tuple[str, Any]]:
    """``(slot, array)`` of what a leaf holds now; the slots that a state leaf leaves empty are left out."""
    if isinstance(leaf, ArraysCache):
        slots: list[Any] = leaf.cache
        return [(str(slot), array) for slot, array in enumerate(slots) if array is not None]
    return [("keys", leaf.keys), ("values", leaf.values)]


__all__ = ["arrays_of", "flatten", "make_cache", "remembered"]
