"""A trial of a model before it serves: some of mlx-lm's models decode one sequence, but not two together.

And some weights or figures make every answer one of NaN, from which a token is chosen all the same.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.leaves import make_cache
from kakeya_ops.errors import UnsupportedModel

_LENGTHS = (2, 5)
_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def try_decoding_together(model: Any, settings: CacheSettings) -> None:
    """Decode one token of two sequences of different lengths in a batch, as the first two requests would.

    At best such a model would fail the second request, at worst end the compute thread. Raises `UnsupportedModel`.
    """
    caches = [make_cache(model, settings) for _ in _LENGTHS]
    try:
        for length, cache in zip(_LENGTHS, caches, strict=True):
            model(mx.zeros((1, length), mx.int32), cache=cache)
        batch = [first.merge([first, second]) for first, second in zip(*caches, strict=True)]
        logits = model(mx.zeros((len(_LENGTHS), 1), mx.int32), cache=batch)
        computes = not mx.isnan(logits).any().item()
    except _FAILURES as error:
        raise UnsupportedModel(f"{_kind(model)} cannot decode two sequences together: {error!r}") from error
    if not computes:
        raise UnsupportedModel(
            f"{_kind(model)} computes what is not a number",
            hint="a figure in its config.json or one of its weights is none; download the model again",
        )


def _kind(model: Any) -> str:
    return str(getattr(model, "model_type", type(model).__name__))


__all__ = ["try_decoding_together"]
