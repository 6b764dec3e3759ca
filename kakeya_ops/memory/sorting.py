"""Which tensors of a checkpoint mlx-lm keeps: what its model files' `sanitize` drops, as rules over names.

Read in the model files of mlx-lm 0.32.2 (https://github.com/ml-explore/mlx-lm/tree/main/mlx_lm/models). Rules see a
tensor's name without the ``language_model.`` that multimodal checkpoints put around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kakeya_ops.memory.config import Config

Drop = Callable[[str, Config], bool]
"""Whether a tensor of this name is left out, under this configuration."""

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_VISION = (
    "vision_tower",
    "vision_model",
    "multi_modal_projector",
    "mm_projector",
    "audio_tower",
    "embed_audio",
    "embed_vision",
    "vision_embedder",
    "visual",
)


def text_name(name: str) -> str:
    """`name` as the language model calls it, whatever wraps it."""
    if name.startswith("model.language_model."):
        return "model." + name.removeprefix("model.language_model.")
    return name.removeprefix("language_model.")


def layer_of(name: str) -> int | None:
    """The number of the layer that a tensor belongs to, or None."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def towers(*names: str) -> Drop:
    """Parts of other senses: vision, audio, and what joins them to the text. Without `names`, all that are known."""
    prefixes = names or _VISION
    return lambda name, config: name.removeprefix("model.").startswith(prefixes)


def containing(*parts: str) -> Drop:
    """Names that contain one of `parts`."""
    return lambda name, config: any(part in name for part in parts)


def starting(*prefixes: str) -> Drop:
    """Names that start with one of `prefixes`."""
    return lambda name, config: name.startswith(prefixes)


def tied_head(default: bool | None = None) -> Drop:
    """The head, where `tie_word_embeddings` (or else `default`) says that the embedding serves for it."""

    def drop(name: str, config: Config) -> bool:
        if name != "lm_head.weight":
            return False
        if default is None and not config.has("tie_word_embeddings"):
            raise config.unknown("its config.json does not say tie_word_embeddings")
        return config.flag("tie_word_embeddings", bool(default))

    return drop


def layers_beyond(name: str, config: Config) -> bool:
    """Layers after the last one: predictors of further tokens."""
    layer = layer_of(name)
    return layer is not None and layer >= config.count("num_hidden_layers")


def layers_named_as_the_count(name: str, config: Config) -> bool:
    """As glm4_moe does it: names that start with the number of layers, whatever digits follow."""
    return name.startswith(f"model.layers.{config.count('num_hidden_layers')}")


def shared_projections(name: str, config: Config) -> bool:
    """Keys and values of layers that borrow them from earlier ones."""
    layer = layer_of(name)
    shared = config.count_or_zero("num_kv_shared_layers", 20)
    return (
        layer is not None
        and any(part in name for part in (".self_attn.k_proj", ".self_attn.v_proj", ".self_attn.k_norm"))
        and layer >= config.count("num_hidden_layers") - shared
    )


ROTARY = containing("rotary_emb.inv_freq")
"""Frequencies that are computed anew."""

__all__ = [
    "ROTARY",
    "Drop",
    "containing",
    "layer_of",
    "layers_beyond",
    "layers_named_as_the_count",
    "shared_projections",
    "starting",
    "text_name",
    "tied_head",
    "towers",
]
