"""How one request's next token is chosen, with random numbers of its own.

mlx-lm's samplers draw from a state that all of a thread's requests share, so that a seed would only be good for a
request that runs alone. Here each request splits a key of its own. And they are compiled anew for each value of top_p,
min_p and temperature, with everybody waiting (seconds on a CPU); these are not.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.sample_utils import apply_top_k, greedy_sampler, make_logits_processors

from kakeya_ops.engine.contract import Sampling

Sampler = Callable[[mx.array], mx.array]

_COLDEST = 1e-5
"""Below this temperature, dividing by it leaves the range of a float; the most likely token is then certain anyway."""
_SEEDS = 2**64


def build_sampler(sampling: Sampling) -> Sampler:
    """The sampler of one request. All greedy requests share one, which lets mlx-lm sample them in a single call."""
    if sampling.temperature < _COLDEST or sampling.top_p <= 0:
        return greedy_sampler
    return _Drawn(sampling)


def build_processors(sampling: Sampling) -> list[Any]:
    """mlx-lm's logits processors for the biases and penalties that `sampling` asks for."""
    return make_logits_processors(
        dict(sampling.logit_bias) or None,
        sampling.repetition_penalty or None,
        presence_penalty=sampling.presence_penalty or None,
        frequency_penalty=sampling.frequency_penalty or None,
    )


class _Drawn:
    """Draws from the filtered distribution; the same seed gives the same draws whatever is decoded beside it."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._key = mx.random.key(secrets.randbelow(_SEEDS) if sampling.seed is None else sampling.seed % _SEEDS)

    def __call__(self, logprobs: mx.array) -> mx.array:
        self._key, key = mx.random.split(self._key)
        return mx.random.categorical(self._filter(logprobs) * (1 / self._sampling.temperature), key=key)

    def _filter(self, logprobs: mx.array) -> mx.array:
        """`logprobs` without the tokens that are not to be chosen, in mlx-lm's order of filters."""
        wanted = self._sampling
        if wanted.top_p < 1:
            logprobs = _keep_mass(logprobs, wanted.top_p)
        if wanted.min_p > 0:
            logprobs = _keep_above(logprobs, logprobs.max(axis=-1, keepdims=True) + math.log(wanted.min_p))
        if 0 < wanted.top_k < logprobs.shape[-1]:
            logprobs = apply_top_k(logprobs, wanted.top_k)
        return logprobs


def _keep_mass(logprobs: mx.array, mass: float) -> mx.array:
    """The fewest most likely tokens that together have at least `mass`, and those as likely as the last of them."""
    ascending = mx.sort(logprobs.astype(mx.float32), axis=-1)
    likelier = mx.cumsum(mx.exp(ascending), axis=-1, reverse=True, inclusive=False)
    return _keep_above(logprobs, mx.where(likelier < mass, ascending, math.inf).min(axis=-1, keepdims=True))


def _keep_above(logprobs: mx.array, least: mx.array) -> mx.array:
    return mx.where(logprobs < least, -math.inf, logprobs)


__all__ = ["Sampler", "build_processors", "build_sampler"]
