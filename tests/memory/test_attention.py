"""Full, sliding and shared layers: by the keys that mlx-lm's model files read, and by no others."""

from __future__ import annotations

from typing import Any

import pytest

from kakeya_ops.errors import FootprintUnknown
from kakeya_ops.memory.attention import (
    FULL,
    SLIDING,
    by_pattern,
    by_types,
    read_experts,
    read_full,
    read_heads,
    read_mixed,
)
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.shape import ExpertShape, LayerCache


def of(**values: Any) -> Config:
    return Config("any", {"num_attention_heads": 8, "hidden_size": 512, "num_hidden_layers": 4} | values)


@pytest.mark.parametrize(
    ("values", "width", "kv", "expected"),
    [
        ({}, "config", None, (8, 64)),
        ({"num_key_value_heads": 2, "head_dim": 32}, "config", None, (2, 32)),
        ({"num_key_value_heads": 2, "head_dim": 32}, "ratio", None, (2, 64)),
        ({"head_dim": None}, 256, 1, (1, 256)),
        ({"head_dim": 128}, 256, 4, (4, 128)),
    ],
)
def test_heads_are_those_that_the_model_file_makes(values: dict, width: Any, kv: int | None, expected: tuple) -> None:
    heads = read_heads(of(**values), width, kv)
    assert (heads.kv, heads.width) == expected


def test_defaults_are_told() -> None:
    config = of()
    read_heads(config)
    assert config.notes == [
        "num_key_value_heads is missing: 8, as num_attention_heads",
        "head_dim is missing: 64, hidden_size / num_attention_heads",
    ]


def test_a_cache_of_a_layer_says_how_it_was_reckoned() -> None:
    cache = read_heads(of(num_key_value_heads=2, head_dim=32)).cache(3, 2)
    about = "2 × num_key_value_heads 2 × head_dim 32 × 2 B"
    assert cache == LayerCache(3, "full", 256, about, None, array_row_bytes=128)


def test_a_window_that_is_ignored_is_told() -> None:
    config = of(sliding_window=128)
    layers = read_full(config, 2, read_heads(config))
    assert {leaf.kind for leaf in layers.caches} == {"full"}
    assert "ignores it" in config.notes[-1]


def test_kinds_by_pattern_and_by_types() -> None:
    assert by_pattern(of(), 7, 6) == [True] * 5 + [False, True]
    assert by_pattern(of(sliding_window_pattern=2), 4, 6) == [True, False, True, False]
    assert by_types(of(layer_types=[SLIDING, FULL, FULL]), 2, ()) == [True, False]
    assert by_types(of(), 3, [SLIDING, FULL] * 3) == [True, False, True]


def test_layer_types_that_gemma_3_ignores_are_told() -> None:
    config = of(layer_types=[FULL] * 4, _sliding_window_pattern=2)
    assert by_pattern(config, 4, 6) == [True] * 4
    assert any("layer_types is there" in note for note in config.notes)


def test_too_few_layer_types_or_strange_ones_are_unknown() -> None:
    with pytest.raises(FootprintUnknown, match="1 entries for 4 layers"):
        by_types(of(layer_types=[FULL]), 4, ())
    with pytest.raises(FootprintUnknown, match="'mystery'"):
        by_types(of(layer_types=[FULL, "mystery"]), 2, ())


def test_mixed_layers_keep_by_their_kind() -> None:
    config = of(sliding_window=128, num_key_value_heads=2, head_dim=32)
    heads = read_heads(config)
    layers = read_mixed(config, 2, [True, False, True], (heads, heads))
    assert [(leaf.kind, leaf.window) for leaf in layers.caches] == [("window", 128), ("full", None), ("window", 128)]
    assert [(scores.layers, scores.window) for scores in layers.attention] == [(2, 128), (1, None)]


def test_sliding_layers_without_a_window_are_unknown() -> None:
    config = of()
    with pytest.raises(FootprintUnknown, match="sliding_window"):
        read_mixed(config, 2, [True], (read_heads(config), read_heads(config)))


@pytest.mark.parametrize(("count", "expected"), [(0, None), (None, None), (4, ExpertShape(2, 512, 96))])
def test_experts_are_there_or_not(count: int | None, expected: ExpertShape | None) -> None:
    assert read_experts(of(n=count, k=2, inner=96), "n", "k", "inner") == expected
