"""Twenty-three small configurations with the bytes that mlx-lm 0.32.2 was measured to allocate for them.

Measured on the real model classes with a loop like `generate_step`'s: all but the prompt's last token in chunks, then
that token, then three more. Formulas were written before, and no row was adjusted after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

W = 128


@dataclass(frozen=True)
class Golden:
    """One row: `final_bytes` at the end, and `largest_bytes` after any chunk where windows make that differ."""

    name: str
    config: dict[str, Any]
    final_bytes: int
    largest_bytes: int | None = None
    float32: bool = False
    prompt: int = 700
    step: int = 256


def base(model_type: str, layers: int, **more: Any) -> dict[str, Any]:
    """The keys that all rows share."""
    return {
        "model_type": model_type,
        "hidden_size": 64,
        "num_hidden_layers": layers,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "rms_norm_eps": 1e-6,
        "vocab_size": 100,
        "rope_theta": 10000.0,
        "max_position_embeddings": 4096,
    } | more


def text(model_type: str, inner: dict[str, Any]) -> dict[str, Any]:
    """A configuration whose language model is nested."""
    return {"model_type": model_type, "vocab_size": 100, "text_config": inner}


MLA: dict[str, Any] = {
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "topk_group": 1,
    "n_group": 1,
}
DELTA: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": False,
    "partial_rotary_factor": 0.5,
}
MAMBA: dict[str, Any] = {
    "conv_kernel": 4,
    "n_groups": 2,
    "use_bias": False,
    "use_conv_bias": True,
    "layer_norm_epsilon": 1e-6,
    "time_step_limit": [0.0, 1e9],
}
GEMMA4: dict[str, Any] = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": W,
    "sliding_window_pattern": 6,
    "hidden_size_per_layer_input": 0,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 32,
    "enable_moe_block": True,
}

ROWS = (
    Golden("llama, heads missing", base("llama", 3), 589_824),
    Golden("llama, head_dim 24", base("llama", 3, num_key_value_heads=2, head_dim=24), 442_368),
    Golden("llama, one chunk", base("llama", 3, num_key_value_heads=2), 393_216, prompt=1000, step=2048),
    Golden("llama, step 300", base("llama", 3, num_key_value_heads=2), 427_008, prompt=1000, step=300),
    Golden(
        "llama, layer_types",
        base(
            "llama",
            3,
            num_key_value_heads=2,
            sliding_window=W,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        ),
        131_072,
        178_688,
    ),
    Golden(
        "qwen2, window ignored",
        base("qwen2", 3, num_key_value_heads=2, use_sliding_window=True, sliding_window=W),
        294_912,
    ),
    Golden("gemma2, window ignored", base("gemma2", 4, num_key_value_heads=2, head_dim=16, sliding_window=W), 393_216),
    Golden(
        "gemma3",
        text(
            "gemma3",
            base("gemma3_text", 8, num_key_value_heads=2, head_dim=16, sliding_window=W, sliding_window_pattern=6),
        ),
        212_992,
        408_704,
    ),
    Golden(
        "gemma3, heads missing",
        text(
            "gemma3",
            {
                key: value
                for key, value in base("gemma3_text", 7, sliding_window=W).items()
                if key != "num_attention_heads"
            },
        ),
        6_291_456,
        11_509_760,
    ),
    Golden(
        "gemma4, K is V",
        text(
            "gemma4",
            base(
                "gemma4_text",
                12,
                **GEMMA4,
                num_kv_shared_layers=0,
                attention_k_eq_v=True,
                num_global_key_value_heads=1,
            ),
        ),
        720_896,
        1_242_624,
        float32=True,
    ),
    Golden(
        "gemma4, shared layers",
        text(
            "gemma4",
            base(
                "gemma4_text",
                12,
                **GEMMA4,
                num_kv_shared_layers=6,
                attention_k_eq_v=False,
                num_global_key_value_heads=1,
            ),
        ),
        557_056,
        795_136,
        float32=True,
    ),
    Golden(
        "gpt_oss",
        base(
            "gpt_oss",
            4,
            num_key_value_heads=2,
            head_dim=16,
            sliding_window=W,
            num_local_experts=4,
            num_experts_per_tok=2,
        ),
        458_752,
        553_984,
        float32=True,
    ),
    Golden("deepseek_v3", base("deepseek_v3", 3, **MLA), 368_640, float32=True),
    Golden(
        "deepseek_v2",
        base("deepseek_v2", 3, **MLA, rope_scaling={"type": "yarn", "factor": 1.0, "mscale_all_dim": 0}),
        1_474_560,
        float32=True,
    ),
    Golden(
        "deepseek_v32",
        base("deepseek_v32", 3, **MLA, index_head_dim=16, index_n_heads=4, index_topk=64),
        663_552,
        float32=True,
    ),
    Golden(
        "qwen3_next",
        base(
            "qwen3_next",
            8,
            **DELTA,
            num_experts=4,
            num_experts_per_tok=2,
            decoder_sparse_step=1,
            shared_expert_intermediate_size=32,
            mlp_only_layers=[],
            moe_intermediate_size=32,
        ),
        509_952,
        float32=True,
    ),
    Golden("qwen3_5", text("qwen3_5", base("qwen3_5_text", 8, **DELTA)), 304_128),
    Golden(
        "mamba2",
        base(
            "mamba2",
            3,
            **MAMBA,
            num_heads=8,
            head_dim=16,
            state_size=32,
            tie_word_embeddings=True,
            time_step_rank="auto",
        ),
        53_760,
    ),
    Golden(
        "nemotron_h",
        base(
            "nemotron_h",
            6,
            **MAMBA,
            hybrid_override_pattern="M-M*M-",
            mamba_num_heads=8,
            mamba_head_dim=16,
            ssm_state_size=32,
            num_key_value_heads=2,
            head_dim=16,
            attention_bias=False,
            mamba_proj_bias=False,
            mlp_bias=False,
        ),
        152_064,
    ),
    Golden(
        "granitemoehybrid",
        base(
            "granitemoehybrid",
            4,
            layer_types=["mamba", "mamba", "attention", "mamba"],
            num_key_value_heads=2,
            mamba_n_heads=8,
            mamba_d_head=16,
            mamba_d_state=32,
            mamba_d_conv=4,
            mamba_n_groups=2,
            mamba_proj_bias=False,
            mamba_conv_bias=True,
            attention_bias=False,
            embedding_multiplier=1.0,
            attention_multiplier=1.0,
            logits_scaling=1.0,
            residual_multiplier=1.0,
            num_local_experts=4,
            num_experts_per_tok=2,
            shared_intermediate_size=32,
        ),
        254_976,
        float32=True,
    ),
    Golden(
        "jamba",
        base(
            "jamba",
            8,
            attn_layer_period=8,
            attn_layer_offset=4,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_key_value_heads=2,
            mamba_d_conv=4,
            mamba_d_state=16,
            mamba_expand=2,
            num_experts=4,
            num_experts_per_tok=2,
        ),
        133_632,
        float32=True,
        prompt=70,
        step=32,
    ),
    Golden(
        "kimi_linear",
        base(
            "kimi_linear",
            4,
            num_key_value_heads=4,
            head_dim=16,
            linear_attn_config={
                "num_heads": 4,
                "head_dim": 32,
                "short_conv_kernel_size": 4,
                "kda_layers": [1, 2, 3],
                "full_attn_layers": [4],
            },
            model_max_length=4096,
            num_experts=4,
            num_experts_per_token=2,
            moe_intermediate_size=32,
            kv_lora_rank=32,
            qk_nope_head_dim=16,
            qk_rope_head_dim=8,
            v_head_dim=16,
            num_shared_experts=1,
        ),
        185_856,
        float32=True,
    ),
    Golden(
        "lfm2",
        base(
            "lfm2",
            4,
            num_key_value_heads=2,
            norm_eps=1e-5,
            conv_bias=False,
            conv_L_cache=3,
            block_dim=64,
            block_ff_dim=128,
            block_multiple_of=8,
            block_ffn_dim_multiplier=1.0,
            block_auto_adjust_ff_dim=False,
            full_attn_idxs=[2],
        ),
        99_072,
    ),
)

__all__ = ["ROWS", "Golden", "W", "base", "text"]
