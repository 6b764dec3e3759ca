"""What of a model directory decides how much memory it takes: bytes of weights, and what each layer keeps and needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["full", "window", "chunked", "state"]
"""What a leaf of the cache keeps: every row; its last `window` rows; the rows of its last chunks; no rows at all."""


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One leaf of a model's cache list: what mlx-lm allocates for one layer and one sequence.

    A row is the KV of one token: `row_bytes` of it, keys and values together, of which `array_row_bytes` are in the
    larger of the two. `state_bytes` do not depend on the number of tokens. `view_row_bytes` are those of each token of
    the last chunk that stay in memory because a state is a view of what was computed for it. `about` is the formula
    with the names of its configuration keys and their values, for people.
    """

    layer: int
    kind: LayerKind
    row_bytes: int
    about: str
    window: int | None = None
    array_row_bytes: int = 0
    state_bytes: int = 0
    view_row_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """How `layers` attention layers of one kind compute their scores; what they keep is in `LayerCache`.

    `form` is ``latent`` where positional scores are made beside the content's (MLA), ``plain`` otherwise. `own_scores`
    says that the model file multiplies queries and keys itself, so that no fused kernel is ever used. `expanded_width`
    are the elements of one token's keys and values that a latent layer unpacks from its cache, over all heads.
    `learned_sinks` says that every query also scores a sink that is a weight. `window` bounds the keys that are looked
    at by the model's own configuration.
    """

    layers: int
    query_heads: int
    query_width: int
    value_width: int
    form: Literal["plain", "latent"] = "plain"
    own_scores: bool = False
    expanded_width: int = 0
    learned_sinks: bool = False
    window: int | None = None


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """One mixture-of-experts block: each token passes `top_k` experts of `intermediate` inner width."""

    top_k: int
    hidden: int
    intermediate: int


@dataclass(frozen=True)
class ModelShape:
    """A model as its memory sees it.

    `weights_bytes` are the tensors that mlx-lm keeps after its model file has sorted them; `dropped_bytes` those that
    are in the shards and not kept: vision, audio, next-token predictors, a tied head, projections of shared layers.
    `element_bytes` are the bytes of one activation, and so of one element of KV. `quantized_elements` are the weights
    that are stored packed, in `quantized_bytes` with their scales. `notes` are sentences on what was missing in the
    configuration, or is there and ignored by mlx-lm.
    """

    model_type: str
    weights_bytes: int
    dropped_bytes: int
    element_bytes: int
    layers: tuple[LayerCache, ...]
    attention: tuple[AttentionShape, ...] = ()
    experts: ExpertShape | None = None
    hidden: int = 0
    vocabulary: int | None = None
    context_tokens: int | None = None
    largest_tensor_bytes: int = 0
    largest_tensor: str = ""
    quantized_elements: int = 0
    quantized_bytes: int = 0
    notes: tuple[str, ...] = ()


__all__ = ["AttentionShape", "ExpertShape", "LayerCache", "LayerKind", "ModelShape"]
