"""Shapes of public models, read from directories that are made of headers only.

Configurations are those of https://github.com/AI-Hypercomputer/maxtext `hf_model_configs.py`; loaded sizes are computed
from the same shapes for uniform quantization.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from kakeya_ops.memory.model_shape import read_shape
from kakeya_ops.memory.shape import ModelShape
from memory.checkpoints import Tensors, linear, write_checkpoint

GEMMA_FILES_BYTES = 15_608_614_044
"""All shards of the founding model, vision tower included."""

_BYTES = {"U32": 4, "BF16": 2}


def attention(layers: int, heads: int, kv: int, width: int, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": width,
        **more,
    }


def gemma4(layers: int, heads: int, kv: tuple[int, int], hidden: int, **more: Any) -> dict[str, Any]:
    """Five sliding layers for each full one, whose keys are also its values."""
    types = ["full_attention" if layer % 6 == 5 else "sliding_attention" for layer in range(layers)]
    text = attention(layers, heads, kv[0], 256, global_head_dim=512, num_global_key_value_heads=kv[1])
    text |= {"attention_k_eq_v": True, "num_kv_shared_layers": 0, "sliding_window": 1024, "layer_types": types}
    text |= {"hidden_size": hidden, "vocab_size": 262144, "model_type": "gemma4_text", **more}
    return {"model_type": "gemma4", "text_config": text}


GEMMA_26B = gemma4(
    30, 16, (8, 2), 2816, enable_moe_block=True, num_experts=128, top_k_experts=8, moe_intermediate_size=704
)
GEMMA_31B = gemma4(60, 32, (16, 4), 5376)
QWEN3_4B = {"model_type": "qwen3", "hidden_size": 2560, "vocab_size": 151936, **attention(36, 32, 8, 128)}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    **attention(48, 32, 4, 128),
}
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "sliding_window": 128,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    **attention(24, 64, 8, 64),
}
_DELTA = {"full_attention_interval": 4, "linear_conv_kernel_dim": 4, "vocab_size": 248320, "model_type": "qwen3_5_text"}
QWEN35_35B = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "hidden_size": 2048,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        **_DELTA,
        **attention(40, 16, 2, 256),
    },
}
QWEN36_27B = {
    "model_type": "qwen3_5",
    "text_config": {
        "hidden_size": 5120,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        **_DELTA,
        **attention(64, 24, 4, 256),
    },
}


def sized(folder: Path, config: Mapping[str, Any], loaded_bytes: float) -> ModelShape:
    """The model of `config` with weights of `loaded_bytes`, evenly over its layers."""
    section = config.get("text_config", config)
    layers = int(section["num_hidden_layers"])
    each = int(loaded_bytes / layers / 2)
    tensors: Tensors = {f"model.layers.{layer}.self_attn.q_proj.weight": ("BF16", [each]) for layer in range(layers)}
    return read_shape(write_checkpoint(folder, config, tensors))


def write_founding_model(folder: Path) -> Path:
    """gemma-4-26B-A4B in 4 bits as it lies on disk: 14.2 GB that mlx-lm loads, and a vision tower that it does not."""
    text = GEMMA_26B["text_config"]
    hidden, experts, inner = 2816, 128, 704
    tensors: dict[str, tuple[str, list[int]]] = dict(linear("language_model.model.embed_tokens", 262144, hidden))
    for layer, kind in enumerate(text["layer_types"]):
        place = f"language_model.model.layers.{layer}"
        width, kv = (512, 2) if kind == "full_attention" else (256, 8)
        tensors |= linear(f"{place}.self_attn.q_proj", 16 * width, hidden)
        tensors |= linear(f"{place}.self_attn.k_proj", kv * width, hidden)
        if kind != "full_attention":
            tensors |= linear(f"{place}.self_attn.v_proj", kv * width, hidden)
        tensors |= linear(f"{place}.self_attn.o_proj", hidden, 16 * width)
        for name, rows, columns in (("gate", 2112, hidden), ("up", 2112, hidden), ("down", hidden, 2112)):
            tensors |= linear(f"{place}.mlp.{name}_proj", rows, columns)
        for name, rows, columns in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
            tensors |= linear(f"{place}.experts.switch_glu.{name}_proj", experts * rows, columns)
        tensors |= linear(f"{place}.router.proj", experts, hidden, bits=8)
        tensors[f"{place}.input_layernorm.weight"] = ("BF16", [hidden])
    loaded = sum(prod(shape) * _BYTES[dtype] for dtype, shape in tensors.values())
    tensors["vision_tower.encoder.weight"] = ("BF16", [(GEMMA_FILES_BYTES - loaded) // 2])
    config = GEMMA_26B | {"quantization": {"group_size": 64, "bits": 4}}
    return write_checkpoint(folder, config, tensors, shards=3)


__all__ = [
    "GEMMA_26B",
    "GEMMA_31B",
    "GEMMA_FILES_BYTES",
    "GPT_OSS_20B",
    "QWEN3_4B",
    "QWEN3_30B",
    "QWEN35_35B",
    "QWEN36_27B",
    "sized",
    "write_founding_model",
]
