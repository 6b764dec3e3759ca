"""What recurrent and convolution layers keep: a state of one size, whatever the number of tokens.

States of gated delta nets, KDA and Mamba 2 are float32 whatever the model's type; short convolutions and the states of
Mamba 1 have the type of the activations. The model files of Mamba and of short convolutions keep the end of a chunk's
input as a view, which keeps all of that input in memory until the next chunk; those of delta nets copy it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.memory.attention import FULL, Heads, Layers, read_heads
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.latent import Latent
from kakeya_ops.memory.shape import AttentionShape, LayerCache

_FLOAT32_BYTES = 4


@dataclass(frozen=True, slots=True)
class State:
    """What a recurrent layer keeps: `nbytes`, and `view_row_bytes` as in `LayerCache`."""

    nbytes: int
    about: str
    view_row_bytes: int = 0

    def cache(self, layer: int) -> LayerCache:
        """The cache of `layer`."""
        return LayerCache(layer, "state", 0, self.about, state_bytes=self.nbytes, view_row_bytes=self.view_row_bytes)


def qwen3_next(config: Config, element_bytes: int, heads: Heads | None = None) -> Layers:
    """Gated delta nets, and full attention in every `full_attention_interval`-th layer."""
    depth, interval = config.count("num_hidden_layers"), config.count("full_attention_interval", 4)
    recurs = [(layer + 1) % interval != 0 for layer in range(depth)]
    types = config.words("layer_types")
    if types is not None and [kind != FULL for kind in types] != recurs:
        config.note("layer_types says otherwise than full_attention_interval, and mlx-lm's model file ignores it")
    kept = _gated_delta(config, element_bytes)
    heads = heads or Heads(
        config.count("num_attention_heads"), config.count("num_key_value_heads"), config.count("head_dim")
    )
    return _hybrid(recurs, kept, heads, element_bytes)


def qwen3_5(config: Config, element_bytes: int) -> Layers:
    """As qwen3_next, with a width of heads that may be missing: qwen3_5(_moe) and the text of Qwen 3.6."""
    return qwen3_next(config, element_bytes, read_heads(config, kv=8))


def kimi_linear(config: Config, element_bytes: int) -> Layers:
    """Kimi delta attention where `kda_layers` (counted from 1) says so, latent attention elsewhere."""
    linear = config.section("linear_attn_config")
    if linear is None or (kda := linear.indices("kda_layers")) is None:
        raise config.unknown("its config.json does not say linear_attn_config.kda_layers")
    depth, heads, width = config.count("num_hidden_layers"), linear.count("num_heads"), linear.count("head_dim")
    kernel = linear.count("short_conv_kernel_size", 4)
    projected = heads * width
    nbytes = 3 * (kernel - 1) * projected * element_bytes + projected * width * _FLOAT32_BYTES
    about = f"3 × (short_conv_kernel_size {kernel} - 1) × {projected} × {element_bytes} B + {projected} × {width} × 4 B"
    latent, kept = _kimi_latent(config), State(nbytes, about)
    caches = tuple(
        kept.cache(layer) if layer + 1 in kda else latent.cache(layer, element_bytes) for layer in range(depth)
    )
    return Layers(depth, caches, _some(latent.scores(sum(cache.kind == "full" for cache in caches))))


def _kimi_latent(config: Config) -> Latent:
    """The model file takes `head_dim` for widths that are missing."""
    width = config.optional_count("head_dim")
    keys = ("qk_nope_head_dim", "v_head_dim", "qk_rope_head_dim")
    given = {key: config.count(key, width, "as head_dim") for key in keys[:2]} | {
        keys[2]: config.count_or_zero(keys[2])
    }
    return Latent(
        config.count("num_attention_heads"),
        config.count("kv_lora_rank"),
        given["qk_rope_head_dim"],
        given["qk_nope_head_dim"],
        given["v_head_dim"],
    )


def mamba2(config: Config, element_bytes: int) -> Layers:
    """Mamba 2 on every layer."""
    depth = config.count("num_hidden_layers")
    width = config.optional_count("ssm_state_size") or config.count("state_size")
    inner = config.count("num_heads") * config.count("head_dim")
    kept = _mamba2(config, element_bytes, inner, (width, "conv_kernel", "n_groups"))
    return Layers(depth, tuple(kept.cache(layer) for layer in range(depth)))


def nemotron_h(config: Config, element_bytes: int) -> Layers:
    """By the letters of `hybrid_override_pattern`: M is Mamba 2, * attention, and - and E keep nothing."""
    letters = _nemotron_letters(config)
    inner = config.count("mamba_num_heads") * config.count("mamba_head_dim")
    kept = _mamba2(config, element_bytes, inner, (config.count("ssm_state_size"), "conv_kernel", "n_groups"))
    heads = read_heads(config)
    caches = tuple(
        kept.cache(layer) if letter == "M" else heads.cache(layer, element_bytes)
        for layer, letter in enumerate(letters)
        if letter in "M*"
    )
    return Layers(len(letters), caches, _some(heads.scores(letters.count("*"))))


_NEMOTRON_TYPES = {"linear_attention": "M", "mamba": "M", "conv": "M", "moe": "E", "mlp": "-", "attention": "*"} | {
    FULL: "*"
}


def _nemotron_letters(config: Config) -> tuple[str, ...]:
    letters = config.words("hybrid_override_pattern")
    if letters is None:
        kinds = config.words("layers_block_type") or config.words("layer_types")
        if kinds is None:
            raise config.unknown("its config.json does not say hybrid_override_pattern")
        letters = tuple(_NEMOTRON_TYPES.get(kind, kind) for kind in kinds)
    if odd := sorted(set(letters) - set("M*-E")):
        raise config.unknown(f"what its layers of the type {odd[0]!r:.40} keep")
    return letters


def granitemoehybrid(config: Config, element_bytes: int) -> Layers:
    """Mamba 2 and attention, by `layer_types`."""
    types = config.words("layer_types")
    if types is None or (odd := sorted(set(types) - {"mamba", "attention"})):
        raise config.unknown(f"its layer_types has {odd[0]!r:.40}" if types else "its config.json has no layer_types")
    recurs = [kind == "mamba" for kind in types]
    kept = _granite_state(config, element_bytes) if any(recurs) else State(0, "")
    return _hybrid(recurs, kept, read_heads(config, "ratio"), element_bytes)


def _granite_state(config: Config, element_bytes: int) -> State:
    inner = config.count("mamba_n_heads") * config.count("mamba_d_head")
    return _mamba2(config, element_bytes, inner, (config.count("mamba_d_state"), "mamba_d_conv", "mamba_n_groups"))


def falcon_h1(config: Config, element_bytes: int) -> Layers:
    """Mamba 2 and attention side by side in every layer."""
    depth, inner = config.count("num_hidden_layers"), config.count("mamba_d_ssm")
    keys = (config.count("mamba_d_state"), "mamba_d_conv", "mamba_n_groups")
    kept = _mamba2(config, element_bytes, inner, keys)
    heads = read_heads(config, 64, kv=2)
    caches = [cache for layer in range(depth) for cache in (kept.cache(layer), heads.cache(layer, element_bytes))]
    return Layers(depth, tuple(caches), (heads.scores(depth),))


def jamba(config: Config, element_bytes: int) -> Layers:
    """Mamba 1, and attention where ``i % attn_layer_period == attn_layer_offset``, or by `layers_block_type`.

    The state is a view too, of those after every token of the chunk.
    """
    depth = config.count("num_hidden_layers")
    kinds = config.words("layers_block_type")
    if kinds is None:
        period, offset = config.count("attn_layer_period"), config.count_or_zero("attn_layer_offset")
        recurs = [layer % period != offset for layer in range(depth)]
    else:
        recurs = [kind == "mamba" for kind in kinds[:depth]]
    kernel, width = config.count("mamba_d_conv"), config.count("mamba_d_state")
    inner = config.count("mamba_expand") * config.count("hidden_size")
    nbytes = (kernel - 1 + width) * inner * element_bytes
    about = f"(mamba_d_conv {kernel} - 1 + mamba_d_state {width}) × {inner} × {element_bytes} B"
    kept = State(nbytes, about, view_row_bytes=(1 + width) * inner * element_bytes)
    return _hybrid(recurs, kept, read_heads(config, "ratio"), element_bytes)


def lfm2(config: Config, element_bytes: int) -> Layers:
    """Short convolutions, and attention at `full_attn_idxs`, or by `layer_types`."""
    depth, kernel, hidden = (
        config.count("num_hidden_layers"),
        config.count("conv_L_cache"),
        config.count("hidden_size"),
    )
    attends = config.indices("full_attn_idxs")
    if attends is None:
        types = config.words("layer_types")
        if types is None:
            raise config.unknown("its config.json says neither full_attn_idxs nor layer_types")
        attends = frozenset(layer for layer, kind in enumerate(types) if kind == FULL)
    about = f"(conv_L_cache {kernel} - 1) × hidden_size {hidden} × {element_bytes} B"
    nbytes = (kernel - 1) * hidden * element_bytes
    kept = State(nbytes, about, view_row_bytes=hidden * element_bytes)
    recurs = [layer not in attends for layer in range(depth)]
    return _hybrid(recurs, kept, read_heads(config, "ratio"), element_bytes)


def _hybrid(recurs: list[bool], kept: State, heads: Heads, element_bytes: int) -> Layers:
    """Layers of a state where `recurs`, of full attention elsewhere."""
    caches = tuple(
        kept.cache(layer) if recurring else heads.cache(layer, element_bytes) for layer, recurring in enumerate(recurs)
    )
    return Layers(len(recurs), caches, _some(heads.scores(recurs.count(False))))


def _some(scores: AttentionShape) -> tuple[AttentionShape, ...]:
    return (scores,) if scores.layers else ()


def _gated_delta(config: Config, element_bytes: int) -> State:
    keys, values = config.count("linear_num_key_heads"), config.count("linear_num_value_heads")
    key_width, value_width = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim", 4)
    conv = (kernel - 1) * (2 * keys * key_width + values * value_width) * element_bytes
    about = (
        f"(linear_conv_kernel_dim {kernel} - 1) × (2 × {keys} × {key_width} + {values} × {value_width})"
        f" × {element_bytes} B + linear_num_value_heads {values} × {value_width} × {key_width} × 4 B"
    )
    return State(conv + values * value_width * key_width * _FLOAT32_BYTES, about)


def _mamba2(config: Config, element_bytes: int, inner: int, keys: tuple[int, str, str]) -> State:
    """Bytes of one Mamba 2 state; `keys` are the state's width and the names of kernel and groups."""
    width, kernel_key, groups_key = keys
    kernel, groups = config.count(kernel_key), config.count(groups_key)
    row = (inner + 2 * groups * width) * element_bytes
    about = (
        f"({kernel_key} {kernel} - 1) × ({inner} + 2 × {groups_key} {groups} × {width}) × {element_bytes} B"
        f" + {inner} × {width} × 4 B"
    )
    return State((kernel - 1) * row + inner * width * _FLOAT32_BYTES, about, view_row_bytes=row)


__all__ = [
    "State",
    "falcon_h1",
    "granitemoehybrid",
    "jamba",
    "kimi_linear",
    "lfm2",
    "mamba2",
    "nemotron_h",
    "qwen3_5",
    "qwen3_next",
]
