"""Recurrent layers: a state of one size, float32 where mlx-lm makes it so, and attention where it says so.

The bytes of each family are those of real models in `test_rows` and `test_shape`; here are the ways to say the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from kakeya_ops.errors import FootprintUnknown
from kakeya_ops.memory import recurrent
from kakeya_ops.memory.attention import Layers
from kakeya_ops.memory.config import Config
from memory.golden import ROWS

BY_TYPE = {row.config["model_type"]: row.config.get("text_config", row.config) for row in ROWS}


def of(model_type: str, **changes: Any) -> Config:
    return Config(model_type, BY_TYPE[model_type] | changes)


def kinds(layers: Layers) -> str:
    return "".join("s" if leaf.kind == "state" else "a" for leaf in layers.caches)


def test_every_fourth_layer_attends_unless_said_otherwise() -> None:
    assert kinds(recurrent.qwen3_5(of("qwen3_5"), 2)) == "sssasssa"
    assert kinds(recurrent.qwen3_5(of("qwen3_5", full_attention_interval=2), 2)) == "sasasasa"


def test_irregular_layer_types_are_ignored_and_told() -> None:
    config = of("qwen3_5", layer_types=["full_attention"] * 8)
    assert kinds(recurrent.qwen3_5(config, 2)) == "sssasssa"
    assert any("layer_types says otherwise" in note for note in config.notes)
    regular = of("qwen3_5", layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 2)
    recurrent.qwen3_5(regular, 2)
    assert not any("otherwise" in note for note in regular.notes)


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5", "kimi_linear"])
def test_states_stay_float32_when_activations_do_not(name: str) -> None:
    read = getattr(recurrent, name)
    narrow, wide = (read(of(name), size).caches[0].state_bytes for size in (2, 4))
    conv = wide - narrow
    assert 0 < 2 * conv < wide


def test_the_state_of_mamba_1_has_the_type_of_the_activations() -> None:
    narrow, wide = (recurrent.jamba(of("jamba"), size).caches[0].state_bytes for size in (2, 4))
    assert wide == 2 * narrow


@pytest.mark.parametrize(
    "same",
    [
        {"hybrid_override_pattern": None, "layers_block_type": ["mamba", "mlp", "mamba", "attention", "conv", "moe"]},
        {"hybrid_override_pattern": list("M-M*ME")},
    ],
)
def test_nemotron_says_its_layers_in_three_ways(same: dict[str, Any]) -> None:
    assert recurrent.nemotron_h(of("nemotron_h", **same), 2) == recurrent.nemotron_h(of("nemotron_h"), 2)
    assert kinds(recurrent.nemotron_h(of("nemotron_h"), 2)) == "ssas"


def test_lfm2_says_its_layers_in_two_ways() -> None:
    types = ["conv", "conv", "full_attention", "conv"]
    assert recurrent.lfm2(of("lfm2", full_attn_idxs=None, layer_types=types), 2) == recurrent.lfm2(of("lfm2"), 2)


def test_jamba_says_its_layers_in_two_ways() -> None:
    types = ["mamba"] * 4 + ["attention"] + ["mamba"] * 3
    assert recurrent.jamba(of("jamba", layers_block_type=types), 2) == recurrent.jamba(of("jamba"), 2)


def test_granite_without_recurrent_layers_needs_no_mamba_keys() -> None:
    config = of("granitemoehybrid", layer_types=["attention"] * 4, mamba_n_heads=None)
    assert kinds(recurrent.granitemoehybrid(config, 2)) == "aaaa"


def test_falcon_keeps_both_kinds_in_every_layer() -> None:
    values = {
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "mamba_d_ssm": 64,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
    }
    layers = recurrent.falcon_h1(Config("falcon_h1", values), 2)
    assert kinds(layers) == "sasa"
    assert layers.caches[0].state_bytes == 3 * (64 + 2 * 16) * 2 + 64 * 16 * 4


@pytest.mark.parametrize(
    ("name", "changes", "missing"),
    [
        ("nemotron_h", {"hybrid_override_pattern": "M?"}, "'?'"),
        ("nemotron_h", {"hybrid_override_pattern": None}, "hybrid_override_pattern"),
        ("granitemoehybrid", {"layer_types": ["mamba", "mystery"]}, "'mystery'"),
        ("granitemoehybrid", {"layer_types": None}, "no layer_types"),
        ("kimi_linear", {"linear_attn_config": {"num_heads": 4}}, "kda_layers"),
        ("lfm2", {"full_attn_idxs": None}, "neither full_attn_idxs nor layer_types"),
        ("qwen3_next", {"linear_num_key_heads": None}, "linear_num_key_heads"),
    ],
)
def test_what_is_not_said_is_unknown(name: str, changes: dict[str, Any], missing: str) -> None:
    with pytest.raises(FootprintUnknown) as raised:
        getattr(recurrent, name)(of(name, **changes), 2)
    assert missing in raised.value.missing
