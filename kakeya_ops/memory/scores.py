"""What a prefill chunk needs besides weights and KV: attention scores, experts, and a buffer that is being grown.

Whether scores are ever written to memory is up to MLX's kernels, so it is a rule with a version. On Metal MLX 0.32
routes to its fused kernel when keys and values have one of a few widths and the chunk has more than eight tokens
(``mlx/backend/metal/scaled_dot_product_attention.cpp``); all else is computed by three calls that materialise one
layer's scores: ``heads × chunk × keys``. The CPU backend never fuses.
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.memory.shape import AttentionShape, ExpertShape


@dataclass(frozen=True, slots=True)
class MlxRule:
    """How one version of MLX on one backend computes attention.

    `fused_widths` are widths of heads that a chunk of more than `vector_tokens` does without scores in memory.
    `plain_copies`, `latent_copies` and `sink_copies` are how many buffers of the size of the scores are alive at once.
    `unpacked_copies` is the same for keys and values that are unpacked from a latent. `grows_beside_scores` says that
    the cache which is being grown is still there twice when the scores are made. `fixed_bytes` is what a loaded process
    needs on top, however short the prompt. `evidence` says where the figures are from.
    """

    name: str
    fused_widths: frozenset[int]
    vector_tokens: int
    plain_copies: float
    latent_copies: float
    sink_copies: float
    unpacked_copies: float
    grows_beside_scores: bool
    fixed_bytes: int
    evidence: str


METAL = MlxRule(
    name="MLX 0.32 on Metal",
    fused_widths=frozenset({64, 72, 80, 96, 128}),
    vector_tokens=8,
    plain_copies=1.0,
    latent_copies=2.0,
    sink_copies=1.0,
    unpacked_copies=2.0,
    grows_beside_scores=False,
    fixed_bytes=800_000_000,
    evidence="public ladders of three families; fixed part seen between 0.5 and 1.5 GB",
)
CPU = MlxRule(
    name="MLX 0.32 on CPU",
    fused_widths=frozenset(),
    vector_tokens=0,
    plain_copies=1.0,
    latent_copies=2.0,
    sink_copies=3.0,
    unpacked_copies=1.0,
    grows_beside_scores=True,
    fixed_bytes=0,
    evidence="measured on Linux, float32",
)


@dataclass(frozen=True, slots=True)
class ScoreNeed:
    """Bytes of one layer's attention in one chunk, the largest single buffer of it, and the formula for people."""

    nbytes: int
    buffer_bytes: int
    source: str


def is_fused(shape: AttentionShape, chunk: int, rule: MlxRule) -> bool:
    """Whether `rule` computes this attention without scores in memory."""
    same = shape.query_width == shape.value_width
    return (
        shape.form == "plain"
        and not shape.own_scores
        and same
        and shape.query_width in rule.fused_widths
        and chunk > rule.vector_tokens
    )


def score_need(shape: AttentionShape, chunk: int, keys: int, element_bytes: int, rule: MlxRule) -> ScoreNeed:
    """What a chunk of `chunk` tokens that look at `keys` rows needs in one layer of `shape`."""
    unpacked = shape.expanded_width * keys * element_bytes
    if is_fused(shape, chunk, rule):
        return ScoreNeed(unpacked, unpacked, f"fused: head width {shape.query_width} ({rule.name})")
    scores = shape.query_heads * chunk * keys * element_bytes
    copies = _copies(shape, rule)
    nbytes = int(copies * scores + rule.unpacked_copies * unpacked) + chunk * keys
    source = (
        f"{copies:g} × num_attention_heads {shape.query_heads} × {chunk} tokens × {keys} keys × {element_bytes} B"
        f" + mask {chunk} × {keys} B ({rule.name}: head width {_widths(shape)} is not fused)"
    )
    return ScoreNeed(nbytes, max(scores, unpacked), source)


def _copies(shape: AttentionShape, rule: MlxRule) -> float:
    if shape.form == "latent":
        return rule.latent_copies
    return rule.sink_copies if shape.learned_sinks else rule.plain_copies


def expert_bytes(shape: ExpertShape, chunk: int, element_bytes: int) -> int:
    """What one block of experts needs for a chunk: measured within 6 % on three shapes."""
    return chunk * shape.top_k * (3 * shape.hidden + 2 * shape.intermediate) * element_bytes


def _widths(shape: AttentionShape) -> str:
    same = shape.query_width == shape.value_width
    return str(shape.query_width) if same else f"{shape.query_width} by {shape.value_width}"


__all__ = ["CPU", "METAL", "MlxRule", "ScoreNeed", "expert_bytes", "is_fused", "score_need"]
