"""Rules over names: each drops what mlx-lm drops, and nothing else."""

from __future__ import annotations

import pytest

from kakeya_ops.errors import FootprintUnknown
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.sorting import (
    containing,
    layer_of,
    layers_beyond,
    layers_named_as_the_count,
    shared_projections,
    starting,
    text_name,
    tied_head,
    towers,
)

TEN = Config("any", {"num_hidden_layers": 10, "num_kv_shared_layers": 4, "tie_word_embeddings": True})


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("model.language_model.layers.0.mlp.weight", "model.layers.0.mlp.weight"),
        ("language_model.model.layers.0.mlp.weight", "model.layers.0.mlp.weight"),
        ("language_model.lm_head.weight", "lm_head.weight"),
        ("model.norm.weight", "model.norm.weight"),
    ],
)
def test_names_are_those_of_the_language_model(name: str, within: str) -> None:
    assert text_name(name) == within


def test_the_layer_of_a_name() -> None:
    assert [layer_of(name) for name in ("model.layers.12.x", "backbone.layers.3.y", "layers.0.z", "norm")] == [
        12,
        3,
        0,
        None,
    ]


@pytest.mark.parametrize(
    ("drop", "dropped", "kept"),
    [
        (towers(), "vision_tower.a", "model.embed_tokens.weight"),
        (towers("visual"), "model.visual.a", "vision_tower.a"),
        (containing("mtp."), "model.mtp.a", "model.a"),
        (starting("model.mtp"), "model.mtp.a", "a.model.mtp"),
        (tied_head(), "lm_head.weight", "lm_head.scales"),
        (layers_beyond, "model.layers.10.a", "model.layers.9.a"),
        (layers_named_as_the_count, "model.layers.10.a", "model.layers.1.a"),
        (layers_named_as_the_count, "model.layers.101.a", "model.norm"),
        (shared_projections, "model.layers.6.self_attn.k_proj.scales", "model.layers.5.self_attn.k_proj.scales"),
        (shared_projections, "model.layers.9.self_attn.k_norm.weight", "model.layers.9.self_attn.q_proj.weight"),
    ],
)
def test_a_rule_drops_what_it_is_for(drop, dropped: str, kept: str) -> None:
    assert drop(dropped, TEN)
    assert not drop(kept, TEN)


@pytest.mark.parametrize(("said", "default", "tied"), [(True, False, True), (False, True, False), (None, True, True)])
def test_a_head_is_tied_by_the_key_or_else_by_the_model_files_default(
    said: bool | None, default: bool, tied: bool
) -> None:
    config = Config("any", {} if said is None else {"tie_word_embeddings": said})
    assert tied_head(default)("lm_head.weight", config) is tied


def test_a_head_without_a_key_and_a_default_is_unknown() -> None:
    with pytest.raises(FootprintUnknown, match="tie_word_embeddings"):
        tied_head()("lm_head.weight", Config("qwen3", {}))
