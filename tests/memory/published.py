"""Published models by the figures of their configurations, and their checkpoints as headers of the real names.

Figures are those of the models' own ``config.json``, collected in AI-Hypercomputer/maxtext
(``src/maxtext/checkpoint_conversion/utils/hf_model_configs.py``), for some also in the pages that tests name. Names
and shapes of tensors come from mlx-lm's model classes, which are built and quantized without being evaluated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

from memory.checkpoints import write_checkpoint
from memory.golden import text

_DTYPES = {"mlx.core.uint32": "U32", "mlx.core.uint8": "U8"}
"""All else was computed in float32 here and is published in half precision."""


def model(model_type: str, dims: tuple[int, int, int, int, int], inner: int, **more: Any) -> dict[str, Any]:
    """A configuration; `dims` are layers, hidden size, vocabulary, attention heads and key-value heads."""
    layers, hidden, vocabulary, heads, kv_heads = dims
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "vocab_size": vocabulary,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": inner,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "max_position_embeddings": 262144,
        "tie_word_embeddings": False,
    } | more


def _qwen_moe(experts: int, top_k: int, inner: int) -> dict[str, Any]:
    return {
        "num_experts": experts,
        "num_experts_per_tok": top_k,
        "moe_intermediate_size": inner,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    }


_DELTA = {
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.25,
    "shared_expert_intermediate_size": 512,
    "head_dim": 256,
}
_MLA = {
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "q_lora_rank": 1536,
    "moe_layer_freq": 1,
    "topk_group": 1,
    "n_group": 1,
}
_DEEPSEEK = _MLA | {
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
}
_GEMMA4 = {
    "head_dim": 256,
    "global_head_dim": 512,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 0,
    "hidden_size_per_layer_input": 0,
    "tie_word_embeddings": True,
    "use_double_wide_mlp": False,
}


def _gemma4(dims: tuple[int, int, int, int, int], inner: int, **more: Any) -> dict[str, Any]:
    return text("gemma4", model("gemma4_text", dims, inner, **(_GEMMA4 | more))) | {"vocab_size": dims[2]}


CONFIGS: Mapping[str, dict[str, Any]] = {
    "gemma-4-26b": _gemma4(
        (30, 2816, 262144, 16, 8),
        2112,
        num_global_key_value_heads=2,
        enable_moe_block=True,
        num_experts=128,
        top_k_experts=8,
        moe_intermediate_size=704,
    ),
    "gemma-4-31b": _gemma4((60, 5376, 262144, 32, 16), 21504, num_global_key_value_heads=4),
    "gemma-3-27b": text(
        "gemma3",
        model("gemma3_text", (62, 5376, 262144, 32, 16), 21504, head_dim=128, sliding_window=1024),
    )
    | {"vocab_size": 262144},
    "qwen3-4b": model("qwen3", (36, 2560, 151936, 32, 8), 9728, head_dim=128, tie_word_embeddings=True),
    "qwen3-30b": model("qwen3_moe", (48, 2048, 151936, 32, 4), 6144, head_dim=128, **_qwen_moe(128, 8, 768)),
    "qwen3-next-80b": model("qwen3_next", (48, 2048, 151936, 16, 2), 5120, **_DELTA, **_qwen_moe(512, 10, 512)),
    "qwen3.5-35b": text(
        "qwen3_5_moe", model("qwen3_5_moe_text", (40, 2048, 248320, 16, 2), 5120, **_DELTA, **_qwen_moe(256, 8, 512))
    ),
    "llama-3.1-8b": model("llama", (32, 4096, 128256, 32, 8), 14336),
    "llama-3.1-70b": model("llama", (80, 8192, 128256, 64, 8), 28672),
    "gpt-oss-20b": model(
        "gpt_oss",
        (24, 2880, 201088, 64, 8),
        2880,
        head_dim=64,
        sliding_window=128,
        num_local_experts=32,
        num_experts_per_tok=4,
    ),
    "gpt-oss-120b": model(
        "gpt_oss",
        (36, 2880, 201088, 64, 8),
        2880,
        head_dim=64,
        sliding_window=128,
        num_local_experts=128,
        num_experts_per_tok=4,
    ),
    "mistral-small-24b": model("mistral", (40, 5120, 131072, 32, 8), 32768, head_dim=128, sliding_window=None),
    "deepseek-v3": model("deepseek_v3", (61, 7168, 129280, 128, 128), 18432, **_DEEPSEEK),
    "deepseek-v3.2": model(
        "deepseek_v32",
        (61, 7168, 129280, 128, 128),
        18432,
        **_DEEPSEEK,
        index_head_dim=128,
        index_n_heads=64,
        index_topk=2048,
    ),
    "deepseek-v2-lite": model(
        "deepseek_v2",
        (27, 2048, 102400, 16, 16),
        10944,
        **_MLA | {"q_lora_rank": None},
        rope_scaling={"type": "yarn", "factor": 40.0, "mscale_all_dim": 0.707, "mscale": 0.707},
        n_routed_experts=64,
        n_shared_experts=2,
        num_experts_per_tok=6,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
    "glm-4.5-air": model(
        "glm4_moe",
        (46, 4096, 151552, 96, 8),
        10944,
        head_dim=128,
        n_routed_experts=128,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
        norm_topk_prob=True,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=1.0,
        rope_scaling=None,
        use_qk_norm=False,
        attention_bias=True,
        partial_rotary_factor=0.5,
    ),
}


def headers(
    config: Mapping[str, Any], bits: int | None, *, mxfp4_experts: bool = False
) -> dict[str, tuple[str, list[int]]]:
    """Every tensor of the model, affine-quantized to `bits` in groups of 64 as mlx_lm.convert does, or bfloat16.

    `mxfp4_experts` keeps experts in MXFP4, as gpt-oss was published.
    """
    model_class, arguments = _get_classes(json.loads(json.dumps(config)))
    built = model_class(arguments.from_dict(json.loads(json.dumps(config))))
    if bits is not None:
        choose = getattr(built, "quant_predicate", None) or (lambda path, module: True)

        def how(path: str, module: Any) -> Any:
            if not hasattr(module, "to_quantized"):
                return False
            if mxfp4_experts and ".experts." in path:
                return {"group_size": 32, "bits": 4, "mode": "mxfp4"}
            return module.weight.shape[-1] % 64 == 0 and choose(path, module)

        nn.quantize(built, 64, bits, class_predicate=how)
    return {
        name: (_DTYPES.get(str(array.dtype), "BF16"), list(array.shape))
        for name, array in tree_flatten(built.parameters())
    }


def publish(path: Path, name: str, bits: int | None = 4, extra: Mapping[str, tuple[str, list[int]]] = {}) -> Path:
    """A directory with the configuration and the headers of a published model, and `extra` tensors."""
    config = CONFIGS[name] | ({} if bits is None else {"quantization": {"group_size": 64, "bits": bits}})
    return write_checkpoint(path, config, headers(CONFIGS[name], bits) | dict(extra), shards=4)


VISION_TOWER = {"vision_tower.encoder.weight": ("BF16", [570, 1_000_000])}
"""A tower of 1.14 GB, as far as anyone can see that of gemma-4-26b."""

__all__ = ["CONFIGS", "VISION_TOWER", "headers", "publish"]
