"""The model files of mlx-lm 0.32.2 that Kakeya can reckon with: what each keeps per layer, and what it leaves out.

A model type that is not here is unknown, and stays so: no formula is tried on it. Remappings of names are those of
``mlx_lm/utils.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kakeya_ops.memory import latent, recurrent
from kakeya_ops.memory.attention import (
    FULL,
    SLIDING,
    Heads,
    Layers,
    Width,
    by_pattern,
    by_types,
    read_full,
    read_heads,
    read_mixed,
)
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.shape import LayerCache
from kakeya_ops.memory.sorting import (
    ROTARY,
    Drop,
    containing,
    layers_beyond,
    layers_named_as_the_count,
    shared_projections,
    starting,
    tied_head,
    towers,
)

Read = Callable[[Config, int], Layers]
"""``(configuration, bytes of one element)`` to what the layers keep."""

_REMAPPED = {
    "mistral": "llama",
    "llava": "mistral3",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
    "xverse": "llama",
    "gemma4_unified": "gemma4",
}


@dataclass(frozen=True)
class Family:
    """One model file. `experts` are the configuration keys of the number of experts, how many a token passes, and
    their inner width. `nested` says that the language model is configured in ``text_config``, where there is one.
    """

    read: Read
    drops: tuple[Drop, ...] = ()
    experts: tuple[str, str, str] | None = None
    nested: bool = False


def family_of(config: Config) -> Family:
    """The family of `config.model_type`. Raises `FootprintUnknown` where it is not in the table."""
    name = _REMAPPED.get(config.model_type, config.model_type)
    if name not in FAMILIES:
        raise config.unknown(f"its model_type {config.model_type!r:.60} is not one that Kakeya has formulas for")
    return FAMILIES[name]


def _full(width: Width = "config", kv: int | None = None, *, own_scores: bool = False) -> Read:
    return lambda config, size: read_full(config, size, read_heads(config, width, kv), own_scores=own_scores)


def _llama(config: Config, size: int) -> Layers:
    heads, depth = read_heads(config), config.count("num_hidden_layers")
    return read_mixed(config, size, by_types(config, depth, [FULL] * depth), (heads, heads))


def _gemma3(config: Config, size: int) -> Layers:
    nested = config.model_type == "gemma3"
    query = config.count("num_attention_heads", 8 if nested else 4)
    heads = Heads(query, config.count("num_key_value_heads", 4 if nested else 1), config.count("head_dim", 256))
    depth = config.count("num_hidden_layers", 26)
    return read_mixed(config, size, by_pattern(config, depth, 6), (heads, heads))


def _gemma3n(config: Config, size: int) -> Layers:
    heads, depth = read_heads(config), config.count("num_hidden_layers")
    return _sharing(config, size, by_types(config, depth, ()), (heads, heads))


def _gemma4(config: Config, size: int) -> Layers:
    query, kv = config.count("num_attention_heads", 8), config.count("num_key_value_heads", 1)
    width = config.count("head_dim", 256)
    wide = config.count("global_head_dim", 512) if config.values.get("global_head_dim", 512) else width
    kv_keys = config.flag("attention_k_eq_v") and config.has("num_global_key_value_heads")
    name = "num_global_key_value_heads" if kv_keys else "num_key_value_heads"
    full = Heads(query, config.count(name) if kv_keys else kv, wide, (name, "global_head_dim"))
    depth = config.count("num_hidden_layers", 35)
    pattern = ([SLIDING] * (config.count_or_zero("sliding_window_pattern", 5) - 1) + [FULL]) * depth
    return _sharing(config, size, by_types(config, depth, pattern), (Heads(query, kv, width), full))


def _sharing(config: Config, size: int, sliding: list[bool], heads: tuple[Heads, Heads]) -> Layers:
    """The last `num_kv_shared_layers` layers look at the KV of earlier ones and keep none."""
    own = len(sliding) - config.count_or_zero("num_kv_shared_layers", 20)
    if own < 1:
        raise config.unknown(f"num_kv_shared_layers in its config.json leaves {own} of {len(sliding)} layers")
    layers = read_mixed(config, size, sliding, heads)
    return Layers(layers.depth, tuple(cache for cache in layers.caches if cache.layer < own), layers.attention)


def _gpt_oss(config: Config, size: int) -> Layers:
    heads = Heads(
        config.count("num_attention_heads", 64), config.count("num_key_value_heads", 8), config.count("head_dim", 64)
    )
    depth = config.count("num_hidden_layers", 36)
    layers = read_mixed(config, size, by_types(config, depth, [SLIDING, FULL] * depth), (heads, heads))
    return replace(layers, attention=tuple(replace(scores, learned_sinks=True) for scores in layers.attention))


def _cohere2(config: Config, size: int) -> Layers:
    heads = read_heads(config, 128, kv=8)
    return read_mixed(config, size, by_pattern(config, config.count("num_hidden_layers", 32), 4), (heads, heads))


def _olmo3(config: Config, size: int) -> Layers:
    heads, depth = read_heads(config), config.count("num_hidden_layers")
    return read_mixed(config, size, by_types(config, depth, ([SLIDING] * 3 + [FULL]) * depth), (heads, heads))


def _exaone4(config: Config, size: int) -> Layers:
    heads, depth, pattern = (
        read_heads(config),
        config.count("num_hidden_layers"),
        config.words("sliding_window_pattern"),
    )
    sliding = [bool(pattern) and pattern[layer % len(pattern)] == "L" for layer in range(depth)] if pattern else []
    return read_mixed(config, size, sliding or [False] * depth, (heads, heads))


def _llama4(config: Config, size: int) -> Layers:
    heads, depth = read_heads(config), config.count("num_hidden_layers")
    chunk = config.count("attention_chunk_size")
    config.note("its chunked attention keeps KV that Kakeya cannot carry exactly, so that it will not serve this model")
    caches = [heads.cache(layer, size) for layer in range(depth)]
    for layer, cache in enumerate(caches):
        if (layer + 1) % 4:
            about = f"{cache.about}, attention_chunk_size {chunk}"
            caches[layer] = LayerCache(layer, "chunked", cache.row_bytes, about, chunk, cache.array_row_bytes)
    return Layers(depth, tuple(caches), (heads.scores(depth),))


def _nanbeige(config: Config, size: int) -> Layers:
    if config.has("loop_loss_weights"):
        raise config.unknown("how often its layers are passed: loop_loss_weights is there")
    heads, depth, loops = read_heads(config), config.count("num_hidden_layers"), config.count("num_loops", 1)
    caches = tuple(heads.cache(layer, size) for _ in range(loops) for layer in range(depth))
    return Layers(depth, caches, (heads.scores(depth * loops),))


def _mistral3(config: Config, size: int) -> Layers:
    """The wrapper makes no cache of its own, so that sliding layers of its text model keep everything."""
    if config.values.get("model_type") == "mistral4":
        return latent.mistral4(config, size)
    if SLIDING in (config.words("layer_types") or ()):
        config.note("layer_types is there, and the wrapper ignores it: every layer keeps everything")
    return read_full(config, size, read_heads(config))


_QWEN_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_DEEPSEEK_EXPERTS = ("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
_MIXTRAL_EXPERTS = ("num_local_experts", "num_experts_per_tok", "intermediate_size")
_GEMMA4 = (containing("self_attn.rotary_emb", "input_max", "input_min", "output_max", "output_min"), shared_projections)
_DEEPSEEK_DROPS = (ROTARY, starting("model.layers.61"))
_GEMMA4_EXPERTS = ("num_experts", "top_k_experts", "moe_intermediate_size")

FAMILIES: Mapping[str, Family] = {
    "llama": Family(_llama, (ROTARY, tied_head(True))),
    "ministral3": Family(_llama, (ROTARY, tied_head(True), containing("activation_scale"))),
    "qwen2": Family(_full("ratio"), (ROTARY, tied_head(True))),
    "qwen2_moe": Family(_full("ratio"), experts=_QWEN_EXPERTS),
    "qwen3": Family(_full(), (tied_head(),)),
    "qwen3_moe": Family(_full(), (tied_head(),), _QWEN_EXPERTS),
    "mixtral": Family(_full("ratio", 8), (tied_head(False),), _MIXTRAL_EXPERTS),
    "minimax": Family(_full(), experts=_MIXTRAL_EXPERTS),
    "gemma": Family(_full()),
    "gemma2": Family(_full(own_scores=True)),
    "gemma3_text": Family(_gemma3),
    "gemma3": Family(_gemma3, (towers("vision_tower", "multi_modal_projector"),), nested=True),
    "gemma3n": Family(_gemma3n, (towers("vision_tower", "audio_tower", "embed_audio", "embed_vision"),), nested=True),
    "gemma4_text": Family(_gemma4, _GEMMA4, _GEMMA4_EXPERTS),
    "gemma4": Family(
        _gemma4,
        (
            towers("vision_tower", "multi_modal_projector", "audio_tower", "embed_audio", "embed_vision", "vision_emb"),
            *_GEMMA4,
        ),
        _GEMMA4_EXPERTS,
        nested=True,
    ),
    "gpt_oss": Family(_gpt_oss, experts=_MIXTRAL_EXPERTS),
    "cohere2": Family(_cohere2),
    "olmo2": Family(_full(), (ROTARY,)),
    "olmo3": Family(_olmo3),
    "olmoe": Family(_full(), experts=("num_experts", "num_experts_per_tok", "intermediate_size")),
    "exaone4": Family(_exaone4),
    "glm": Family(_full(), (ROTARY, tied_head(True))),
    "glm4": Family(_full()),
    "glm4_moe": Family(_full(), (layers_named_as_the_count,), _DEEPSEEK_EXPERTS),
    "phi3": Family(_full("ratio")),
    "starcoder2": Family(_full("ratio")),
    "smollm3": Family(_full(), (ROTARY, tied_head(True))),
    "seed_oss": Family(_full(), (tied_head(True),)),
    "granite": Family(_full("ratio"), (tied_head(True),)),
    "hunyuan_v1_dense": Family(_full(), (tied_head(False),)),
    "nanbeige": Family(_nanbeige, (ROTARY,)),
    "llama4": Family(
        _llama4,
        (containing("vision_model", "multi_modal_projector"),),
        ("num_local_experts", "num_experts_per_tok", "intermediate_size"),
        nested=True,
    ),
    "mistral3": Family(
        _mistral3, (towers("vision_tower", "multi_modal_projector"), ROTARY, tied_head(False)), nested=True
    ),
    "pixtral": Family(_mistral3, (towers("vision_tower", "multi_modal_projector"),), nested=True),
    "qwen2_vl": Family(_full("ratio"), (towers("visual", "vision_tower"),), nested=True),
    "qwen3_vl": Family(_full(), (towers("visual", "vision_tower"),), nested=True),
    "qwen3_vl_moe": Family(_full(), (towers("visual"),), _QWEN_EXPERTS, nested=True),
    "deepseek_v2": Family(latent.deepseek_v2, experts=_DEEPSEEK_EXPERTS),
    "deepseek_v3": Family(latent.deepseek_v3, _DEEPSEEK_DROPS, _DEEPSEEK_EXPERTS),
    "kimi_k25": Family(latent.deepseek_v3, (towers(), *_DEEPSEEK_DROPS), _DEEPSEEK_EXPERTS, nested=True),
    "kimi_vl": Family(
        latent.deepseek_v3,
        (containing("vision_tower", "rotary_emb", "multi_modal_projector"),),
        _DEEPSEEK_EXPERTS,
        nested=True,
    ),
    "glm4_moe_lite": Family(latent.deepseek_v3, (layers_beyond,), _DEEPSEEK_EXPERTS),
    "mistral4": Family(latent.mistral4, (ROTARY,), _DEEPSEEK_EXPERTS),
    "minicpm3": Family(latent.minicpm3),
    "youtu_llm": Family(latent.deepseek_v2, (tied_head(True),)),
    "deepseek_v32": Family(latent.deepseek_v32, (layers_beyond,), _DEEPSEEK_EXPERTS),
    "glm_moe_dsa": Family(latent.deepseek_v32, (layers_beyond,), _DEEPSEEK_EXPERTS),
    "longcat_flash": Family(latent.longcat_flash, (starting("model.mtp"),)),
    "qwen3_next": Family(recurrent.qwen3_next, (containing("mtp."), tied_head(False)), _QWEN_EXPERTS),
    "qwen3_5": Family(
        recurrent.qwen3_5,
        (towers("visual", "vision_tower"), containing("mtp."), tied_head(False)),
        _QWEN_EXPERTS,
        nested=True,
    ),
    "qwen3_5_moe": Family(
        recurrent.qwen3_5,
        (towers("visual", "vision_tower"), containing("mtp."), tied_head(False)),
        _QWEN_EXPERTS,
        nested=True,
    ),
    "kimi_linear": Family(
        recurrent.kimi_linear,
        (starting("model.mtp"), tied_head(False)),
        ("num_experts", "num_experts_per_token", "moe_intermediate_size"),
    ),
    "mamba2": Family(recurrent.mamba2),
    "nemotron_h": Family(recurrent.nemotron_h, (starting("mtp."),), _DEEPSEEK_EXPERTS),
    "granitemoehybrid": Family(recurrent.granitemoehybrid, (tied_head(True),), _MIXTRAL_EXPERTS),
    "falcon_h1": Family(recurrent.falcon_h1),
    "jamba": Family(recurrent.jamba, (tied_head(True),), ("num_experts", "num_experts_per_tok", "intermediate_size")),
    "lfm2": Family(recurrent.lfm2),
    "lfm2_moe": Family(recurrent.lfm2, experts=_QWEN_EXPERTS),
    "lfm2-vl": Family(recurrent.lfm2, (towers("vision_tower", "multi_modal_projector"),), nested=True),
}

__all__ = ["FAMILIES", "Family", "Read", "family_of"]
