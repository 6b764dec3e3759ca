"""What mlx-lm 0.32.2 does when it is told to quantize KV (`--kv-bits`), which is not always what is hoped for.

Kakeya never quantizes KV; this is for judging other servers. Measured: it begins only after `quantized_kv_start`
tokens, by default 5000, and it raises on many models. Quantized KV is never fused, so that prefill needs scores in
memory (https://github.com/ml-explore/mlx-lm/issues/1587, https://github.com/raullenchai/Rapid-MLX/issues/2967).
"""

from __future__ import annotations

from kakeya_ops.memory.shape import LayerCache, ModelShape

QUANTIZED_KV_START_TOKENS = 5000
_WORD_BITS = 32


def quantized_kv_fault(shape: ModelShape, bits: int = 8, group_size: int = 64) -> str | None:
    """Why generation will fail once KV is to be quantized; None when it will not."""
    if any(leaf.kind == "window" for leaf in shape.layers):
        return "its sliding layers keep a rotating cache, which mlx-lm cannot quantize (NotImplementedError)"
    if any(leaf.kind == "chunked" for leaf in shape.layers):
        return "its chunked layers keep a cache that mlx-lm cannot quantize"
    if any(attention.form == "latent" for attention in shape.attention):
        return "its latent attention multiplies the cache itself, which fails on a quantized one (AttributeError)"
    if any(attention.learned_sinks for attention in shape.attention):
        return "its learned sinks are not supported with a quantized cache (ValueError)"
    widths = {width for attention in shape.attention for width in (attention.query_width, attention.value_width)}
    return next(filter(None, (_width_fault(width, bits, group_size) for width in sorted(widths))), None)


def _width_fault(width: int, bits: int, group_size: int) -> str | None:
    if width % group_size:
        return f"its heads of width {width} cannot be split into groups of {group_size} (ValueError)"
    if width // (_WORD_BITS // bits) != width * bits // _WORD_BITS:
        return f"its heads of width {width} take another number of words at {bits} bits than mlx-lm allocates"
    return None


def quantized_row_bytes(leaf: LayerCache, element_bytes: int, bits: int, group_size: int = 64) -> float:
    """Bytes of one token in a quantized `leaf`: `bits`, and a scale and a bias for each group."""
    return leaf.row_bytes / element_bytes * (bits / 8 + 2 * element_bytes / group_size)


__all__ = ["QUANTIZED_KV_START_TOKENS", "quantized_kv_fault", "quantized_row_bytes"]
