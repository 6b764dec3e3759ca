"""Tiny random models of every family whose KV is carried, made in a moment, for tests on the real engine.

Each keeps its KV in another way. All are float32 and small, their greedy output depends on the whole prompt, and the
recurrent ones forget slowly enough that a lost state shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from kakeya_ops.demo.tiny_model import (
    Draw,
    HeadRows,
    Recipe,
    TinySizes,
    base_config,
    write_byte_tokenizer,
    write_model,
)

OWN_WINDOW = 64
"""Tokens that the sliding layers of the families below remember."""


def around(centre: float, spread: float = 0.02) -> Draw:
    """Values near `centre`."""
    return lambda _, shape, key: centre + spread * mx.random.normal(shape, key=key)


def between(low: float, high: float) -> Draw:
    """Logarithms of values between `low` and `high`."""
    return lambda _, shape, key: mx.log(mx.random.uniform(low, high, shape, key=key))


SLOW_DECAY: Mapping[str, Draw] = {
    "A_log": between(0.001, 0.02),
    "dt_bias": around(0.0, 0.3),
    "D": around(1.0),
    "conv1d": around(0.0, 0.6),
}
"""Recurrent layers that still know their first tokens after hundreds of others."""


@dataclass(frozen=True)
class Family:
    """What sets one family apart from the others; `recipe` are arguments of `Recipe`."""

    model_type: str
    architecture: str
    config: Mapping[str, Any]
    layers: int = 2
    recipe: Mapping[str, Any] = field(default_factory=dict)


def _gemma4(**config: Any) -> Family:
    """Layers sliding, sliding, full, sliding; then, with `num_kv_shared_layers`, two that borrow the KV of these."""
    layers = 4 + config.get("num_kv_shared_layers", 0)
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    kinds += ["sliding_attention", "full_attention"]
    defaults = {
        "layer_types": kinds[:layers],
        "sliding_window": OWN_WINDOW,
        "global_head_dim": 32,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "final_logit_softcapping": 30.0,
    }
    own = {"layer_scalar": around(1.0, 0.0), "q_norm": around(0.3)}
    recipe = {"embedding": 0.3 / 8, "own": own}
    return Family("gemma4_text", "Gemma4ForCausalLM", defaults | config, layers, recipe)


FAMILIES: Mapping[str, Family] = {
    "llama": Family("llama", "LlamaForCausalLM", {"rope_theta": 10000.0}),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", {"rope_theta": 10000.0}),
    "gemma3": Family(
        "gemma3_text",
        "Gemma3ForCausalLM",
        {
            "rope_theta": 10000.0,
            "rope_local_base_freq": 10000.0,
            "sliding_window": OWN_WINDOW,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 16,
        },
        layers=3,
        recipe={"norm": 0.0, "embedding": 0.3 / 8},
    ),
    "gemma4_shared": _gemma4(
        num_kv_shared_layers=2, hidden_size_per_layer_input=8, vocab_size_per_layer_input=260, use_double_wide_mlp=True
    ),
    "gemma4_k_eq_v": _gemma4(attention_k_eq_v=True, num_global_key_value_heads=1),
    "gpt_oss": Family(
        "gpt_oss",
        "GptOssForCausalLM",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": OWN_WINDOW,
            "rope_theta": 10000,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "qwen3_next": Family(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        {
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "linear_conv_kernel_dim": 4,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "decoder_sparse_step": 1,
            "shared_expert_intermediate_size": 64,
            "mlp_only_layers": [0],
            "moe_intermediate_size": 64,
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "norm_topk_prob": True,
            "full_attention_interval": 2,
        },
        recipe={"own": SLOW_DECAY},
    ),
    "deepseek_v3": Family(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        {
            "kv_lora_rank": 16,
            "q_lora_rank": 32,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
            "n_shared_experts": 1,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "first_k_dense_replace": 1,
            "rope_theta": 10000.0,
        },
    ),
    "mamba2": Family(
        "mamba2",
        "Mamba2ForCausalLM",
        {
            "num_heads": 4,
            "expand": 1,
            "state_size": 16,
            "layer_norm_epsilon": 1e-6,
            "conv_kernel": 4,
            "n_groups": 2,
            "use_bias": False,
            "use_conv_bias": True,
            "time_step_limit": [0.001, 100.0],
            "time_step_rank": "auto",
        },
        recipe={"own": SLOW_DECAY},
    ),
    "granite_hybrid": Family(
        "granitemoehybrid",
        "GraniteMoeHybridForCausalLM",
        {
            "attention_bias": False,
            "embedding_multiplier": 1.0,
            "attention_multiplier": 0.25,
            "logits_scaling": 1.0,
            "residual_multiplier": 1.0,
            "layer_types": ["mamba", "attention", "mamba"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 64,
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_n_groups": 2,
            "mamba_proj_bias": False,
            "mamba_conv_bias": True,
            "mamba_expand": 1,
            "position_embedding_type": "rope",
            "rope_theta": 10000.0,
        },
        layers=3,
        recipe={"own": SLOW_DECAY},
    ),
}

MakeFamily = Callable[[str], Path]
"""The name of a family to its model directory, made at the first call."""


def make_family(name: str, out: Path, *, seed: int = 0) -> Path:
    """Write a tiny model of family `name` to `out` and return it."""
    family = FAMILIES[name]
    sizes = TinySizes(layers=family.layers)
    symbols = write_byte_tokenizer(out, sizes.context_tokens)
    config = base_config(family.model_type, family.architecture, sizes, len(symbols)) | family.config
    write_model(out, config, Recipe(HeadRows(symbols), **family.recipe), seed=seed)
    return out


__all__ = ["FAMILIES", "OWN_WINDOW", "Family", "MakeFamily", "make_family"]
