"""Samplers and logits processors of mlx-lm, with a random state of its own for each seeded request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.sample_utils import greedy_sampler, make_logits_processors, make_sampler

from kakeya_ops.engine.contract import Sampling

Sampler = Callable[[mx.array], mx.array]


def build_sampler(sampling: Sampling) -> Sampler:
    """The sampler of one request. All greedy requests share one, which lets mlx-lm sample them in a single call."""
    if sampling.temperature == 0:
        return greedy_sampler  # type: ignore[no-any-return]
    sampler = make_sampler(
        temp=sampling.temperature, top_p=sampling.top_p, min_p=sampling.min_p, top_k=sampling.top_k
    )
    return sampler if sampling.seed is None else _Seeded(sampler, sampling.seed)


def build_processors(sampling: Sampling) -> list[Any]:
    """mlx-lm's logits processors for the biases and penalties that `sampling` asks for."""
    return make_logits_processors(  # type: ignore[no-any-return]
        dict(sampling.logit_bias) or None,
        sampling.repetition_penalty or None,
        presence_penalty=sampling.presence_penalty or None,
        frequency_penalty=sampling.frequency_penalty or None,
    )


class _Seeded:
    """A sampler whose random numbers depend on its seed alone, not on what is decoded beside it.

    mlx-lm's samplers draw from MLX's thread-wide state, so that state is exchanged around each call.
    """

    def __init__(self, sampler: Sampler, seed: int) -> None:
        self._sampler = sampler
        self._key = mx.random.key(seed % 2**64)

    def __call__(self, logprobs: mx.array) -> mx.array:
        shared = mx.random.state[0]
        mx.random.state[0] = self._key
        try:
            return self._sampler(logprobs)
        finally:
            self._key = mx.random.state[0]
            mx.random.state[0] = shared


__all__ = ["Sampler", "build_processors", "build_sampler"]
