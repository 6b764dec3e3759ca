"""What attention layers keep: full, sliding and chunked, and the layers that borrow the KV of others.

Each function reads what one of mlx-lm's model files reads, and no other key, because what counts is what the runtime
does: a window that its model file ignores is no window here either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kakeya_ops.memory.config import Config
from kakeya_ops.memory.shape import AttentionShape, ExpertShape, LayerCache

SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Layers:
    """What a reader found: the leaves of the cache list, how scores are made, and how many layers the model has."""

    depth: int
    caches: tuple[LayerCache, ...]
    attention: tuple[AttentionShape, ...] = ()


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of one kind of attention layer, their width in elements, and the configuration keys that said so."""

    query: int
    kv: int
    width: int
    names: tuple[str, str] = ("num_key_value_heads", "head_dim")

    def cache(self, layer: int, element_bytes: int, window: int | None = None) -> LayerCache:
        """The cache of `layer`, rotating with a `window`."""
        array = self.kv * self.width * element_bytes
        about = f"2 × {self.names[0]} {self.kv} × {self.names[1]} {self.width} × {element_bytes} B"
        kind: Literal["full", "window"] = "full" if window is None else "window"
        return LayerCache(layer, kind, 2 * array, about, window, array_row_bytes=array)

    def scores(self, layers: int, window: int | None = None, *, own_scores: bool = False) -> AttentionShape:
        """How `layers` of this kind make their scores."""
        return AttentionShape(layers, self.query, self.width, self.width, own_scores=own_scores, window=window)


Width = Literal["config", "ratio"] | int
"""Where a head's width comes from: `head_dim` or else the ratio; always the ratio; `head_dim` or else this default."""


def read_heads(config: Config, width: Width = "config", kv: int | None = None) -> Heads:
    """The heads of a model file that takes `head_dim` and `num_key_value_heads` from the usual keys.

    A missing `num_key_value_heads` is `kv`, or where that is None as many as there are attention heads.
    """
    query = config.count("num_attention_heads")
    if kv is None:
        kv_heads = config.count("num_key_value_heads", query, "as num_attention_heads")
    else:
        kv_heads = config.count("num_key_value_heads", kv)
    if isinstance(width, int):
        return Heads(query, kv_heads, config.count("head_dim", width))
    if width == "config" and (given := config.optional_count("head_dim")) is not None:
        return Heads(query, kv_heads, given)
    hidden = config.count("hidden_size")
    if width == "config":
        config.note(f"head_dim is missing: {hidden // query}, hidden_size / num_attention_heads")
    return Heads(query, kv_heads, hidden // query, ("num_key_value_heads", "hidden_size / num_attention_heads"))


def read_full(config: Config, element_bytes: int, heads: Heads, *, own_scores: bool = False) -> Layers:
    """Every layer keeps everything. A window in the configuration is told to be ignored."""
    if config.has("sliding_window"):
        config.note("sliding_window is there, and mlx-lm's model file ignores it: every layer keeps everything")
    depth = config.count("num_hidden_layers")
    caches = tuple(heads.cache(layer, element_bytes) for layer in range(depth))
    return Layers(depth, caches, (heads.scores(depth, own_scores=own_scores),))


def read_mixed(config: Config, element_bytes: int, sliding: Sequence[bool], heads: tuple[Heads, Heads]) -> Layers:
    """Layer by layer as `sliding` says; `heads` of the sliding and of the full layers."""
    if not any(sliding):
        return read_full(Config(config.model_type, {"num_hidden_layers": len(sliding)}), element_bytes, heads[1])
    window = config.count("sliding_window", _WINDOW_DEFAULTS.get(config.model_type))
    caches = tuple(
        heads[0].cache(layer, element_bytes, window) if slides else heads[1].cache(layer, element_bytes)
        for layer, slides in enumerate(sliding)
    )
    scores = [heads[0].scores(sum(sliding), window)]
    if not all(sliding):
        scores.append(heads[1].scores(len(sliding) - sum(sliding)))
    return Layers(len(sliding), caches, tuple(scores))


_WINDOW_DEFAULTS = {
    "gemma3_text": 512,
    "gemma3": 512,
    "gemma4": 512,
    "gemma4_text": 512,
    "gemma4_unified": 512,
    "gpt_oss": 128,
    "cohere2": 4096,
}
"""What model files use when `sliding_window` is missing."""


def by_pattern(config: Config, depth: int, default: int) -> list[bool]:
    """Which layers slide, where every `sliding_window_pattern`-th layer is a full one."""
    if config.has("layer_types") and not config.has("sliding_window_pattern"):
        config.note("layer_types is there, and mlx-lm's model file ignores it: it goes by sliding_window_pattern")
    pattern = config.count("sliding_window_pattern", default)
    return [(layer + 1) % pattern != 0 for layer in range(depth)]


def by_types(config: Config, depth: int, default: Sequence[str]) -> list[bool]:
    """Which layers slide, by `layer_types`, or by `default` where that is missing."""
    types = config.words("layer_types")
    if types is None:
        types = tuple(default)
    if len(types) < depth:
        raise config.unknown(f"layer_types in its config.json has {len(types)} entries for {depth} layers")
    if odd := sorted(set(types[:depth]) - {SLIDING, FULL}):
        raise config.unknown(f"what its layers of the type {odd[0]!r:.40} keep")
    return [kind == SLIDING for kind in types[:depth]]


def read_experts(config: Config, count: str, top_k: str, intermediate: str) -> ExpertShape | None:
    """The experts' block, by the names of its configuration keys; None where the model has none."""
    if not config.count_or_zero(count):
        return None
    return ExpertShape(config.count(top_k), config.count("hidden_size"), config.count(intermediate))


__all__ = [
    "FULL",
    "SLIDING",
    "Heads",
    "Layers",
    "Width",
    "by_pattern",
    "by_types",
    "read_experts",
    "read_full",
    "read_heads",
    "read_mixed",
]
