"""What multi-head latent attention keeps: a latent for all heads, or the heads' own keys and values unpacked from it.

Which of the two is up to the model file: ``deepseek_v3`` caches the latent, ``deepseek_v2`` the expanded heads, which
are many times larger (https://github.com/ml-explore/mlx-lm/pull/839).
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.memory.attention import Layers
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.shape import AttentionShape, LayerCache


@dataclass(frozen=True, slots=True)
class Latent:
    """The dimensions of one latent attention layer, in elements."""

    heads: int
    rank: int
    rope: int
    nope: int
    value: int

    def cache(self, layer: int, element_bytes: int) -> LayerCache:
        """A cache of the latent and the positional key, which all heads share."""
        about = f"(kv_lora_rank {self.rank} + qk_rope_head_dim {self.rope}) × {element_bytes} B"
        row = (self.rank + self.rope) * element_bytes
        return LayerCache(layer, "full", row, about, array_row_bytes=max(self.rank, self.rope) * element_bytes)

    def expanded(self, layer: int, element_bytes: int) -> LayerCache:
        """A cache of every head's own key and value."""
        key = self.nope + self.rope
        about = (
            f"num_attention_heads {self.heads} × (qk_nope_head_dim {self.nope} + qk_rope_head_dim {self.rope}"
            f" + v_head_dim {self.value}) × {element_bytes} B"
        )
        array = self.heads * max(key, self.value) * element_bytes
        row = self.heads * (key + self.value) * element_bytes
        return LayerCache(layer, "full", row, about, array_row_bytes=array)

    def scores(self, layers: int) -> AttentionShape:
        """Scores whose positional part is computed apart and handed to the kernel as a mask."""
        width = self.heads * (self.nope + self.value)
        return AttentionShape(layers, self.heads, self.nope, self.value, "latent", expanded_width=width)

    def plain_scores(self, layers: int, *, unpacks: bool = False) -> AttentionShape:
        """Scores of whole keys; `unpacks` says that they are made from the latent first."""
        key = self.nope + self.rope
        width = self.heads * (key + self.value) if unpacks else 0
        return AttentionShape(layers, self.heads, key, self.value, expanded_width=width)


def read_latent(config: Config, value: int | None = None) -> Latent:
    """The dimensions by the usual keys; `value` is the width of values where the model file reads no `v_head_dim`."""
    return Latent(
        heads=config.count("num_attention_heads"),
        rank=config.count("kv_lora_rank"),
        rope=config.count("qk_rope_head_dim"),
        nope=config.count("qk_nope_head_dim"),
        value=config.count("v_head_dim") if value is None else value,
    )


def deepseek_v3(config: Config, element_bytes: int) -> Layers:
    """The latent on every layer: also kimi_k2, joyai_llm_flash, glm4_moe_lite, and the text of kimi_vl and kimi_k25."""
    latent, depth = read_latent(config), config.count("num_hidden_layers")
    return Layers(depth, tuple(latent.cache(layer, element_bytes) for layer in range(depth)), (latent.scores(depth),))


def mistral4(config: Config, element_bytes: int) -> Layers:
    """Keeps the latent, and in a chunk makes whole keys of it."""
    latent, depth = read_latent(config), config.count("num_hidden_layers")
    scores = latent.plain_scores(depth, unpacks=True)
    return Layers(depth, tuple(latent.cache(layer, element_bytes) for layer in range(depth)), (scores,))


def deepseek_v2(config: Config, element_bytes: int) -> Layers:
    """Expanded heads on every layer: also youtu_llm."""
    return _expanded(config, element_bytes, read_latent(config))


def minicpm3(config: Config, element_bytes: int) -> Layers:
    """Expanded heads whose values have the width hidden_size / num_attention_heads."""
    value = config.count("hidden_size") // config.count("num_attention_heads")
    return _expanded(config, element_bytes, read_latent(config, value))


def deepseek_v32(config: Config, element_bytes: int) -> Layers:
    """The latent, and beside it the indexer's keys, twice: its cache has values of the same width that nobody reads."""
    latent, depth = read_latent(config), config.count("num_hidden_layers")
    width = config.count("index_head_dim")
    row = 2 * width * element_bytes
    about = f"2 × index_head_dim {width} × {element_bytes} B"
    caches = [
        cache
        for layer in range(depth)
        for cache in (
            latent.cache(layer, element_bytes),
            LayerCache(layer, "full", row, about, array_row_bytes=row // 2),
        )
    ]
    return Layers(depth, tuple(caches), (latent.scores(depth),))


def longcat_flash(config: Config, element_bytes: int) -> Layers:
    """Two latent attentions in each of `num_layers` layers."""
    latent, depth = read_latent(config), config.count("num_layers")
    caches = tuple(latent.cache(layer, element_bytes) for layer in range(depth) for _ in range(2))
    return Layers(depth, caches, (latent.scores(2 * depth),))


def _expanded(config: Config, element_bytes: int, latent: Latent) -> Layers:
    depth = config.count("num_hidden_layers")
    caches = tuple(latent.expanded(layer, element_bytes) for layer in range(depth))
    return Layers(depth, caches, (latent.plain_scores(depth),))


__all__ = [
    "Latent",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "longcat_flash",
    "minicpm3",
    "mistral4",
    "read_latent",
]
