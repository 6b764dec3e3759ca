"""What is known of each cache class, and that nothing else is taken for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.leaves import arrays_of, flatten, make_cache, remembered
from kakeya_ops.engine.sink_window import SinkWindowKVCache
from kakeya_ops.errors import UnsupportedModel


class Derived(KVCache):
    """A class that may keep whatever it likes."""


def model_with(*leaves: Any, model_type: str = "any") -> Any:
    return SimpleNamespace(make_cache=lambda: list(leaves), model_type=model_type)


def test_leaves_come_in_the_order_of_the_list_with_nested_lists_opened() -> None:
    leaves = [KVCache(), ArraysCache(2), KVCache(), RotatingKVCache(8), KVCache()]
    nested = [leaves[0], CacheList(leaves[1], CacheList(leaves[2], leaves[3])), leaves[4]]
    assert [id(leaf) for leaf in flatten(nested)] == [id(leaf) for leaf in leaves]


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (KVCache(), (0, None)),
        (RotatingKVCache(max_size=32, keep=0), (0, 32)),
        (SinkWindowKVCache(4, 28), (4, 28)),
        (ArraysCache(2), None),
    ],
)
def test_what_a_leaf_remembers(leaf: Any, expected: object) -> None:
    assert remembered(leaf) == expected


@pytest.mark.parametrize(
    "leaf",
    [QuantizedKVCache(), ChunkedKVCache(8), ConcatenateKVCache(), RotatingKVCache(max_size=8, keep=4), Derived()],
    ids=lambda leaf: type(leaf).__name__,
)
def test_what_cannot_be_carried_exactly_is_refused_by_name(leaf: Any) -> None:
    with pytest.raises(UnsupportedModel, match=type(leaf).__name__):
        remembered(leaf)
    with pytest.raises(UnsupportedModel, match=type(leaf).__name__):
        make_cache(model_with(leaf), CacheSettings())


def test_a_windowed_cache_list_has_sinks_where_attention_is_full_and_nowhere_else() -> None:
    model = model_with(KVCache(), RotatingKVCache(max_size=16, keep=0), ArraysCache(1))
    full, sliding, state = make_cache(model, CacheSettings(sink=2, window=30))
    assert remembered(full) == (2, 30)
    assert remembered(sliding) == (0, 16)
    assert remembered(state) is None


def test_a_family_that_bears_no_window_is_refused_one() -> None:
    model = model_with(KVCache(), model_type="deepseek_v32")
    assert make_cache(model, CacheSettings())
    with pytest.raises(UnsupportedModel, match="deepseek_v32"):
        make_cache(model, CacheSettings(window=64))


def test_slots_that_a_state_leaves_empty_are_left_out() -> None:
    leaf = ArraysCache(3)
    leaf[1] = mx.zeros((1, 4))
    assert [slot for slot, _ in arrays_of(leaf)] == ["1"]
    assert [slot for slot, _ in arrays_of(KVCache())] == ["keys", "values"]
