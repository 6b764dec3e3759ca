"""Choosing tokens: seeds, filters, penalties."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.sample_utils import greedy_sampler

from kakeya_ops.engine.contract import Sampling
from kakeya_ops.engine.sampling import Sampler, build_processors, build_sampler

PROBABILITIES = [0.4, 0.3, 0.2, 0.1]


def logprobs(probabilities: list[float] = PROBABILITIES) -> mx.array:
    return mx.log(mx.array([probabilities]))


def draw(sampler: Sampler, count: int) -> list[int]:
    values = logprobs()
    return [int(sampler(values).item()) for _ in range(count)]


def seen(count: int = 200, **wanted: Any) -> set[int]:
    """What is ever drawn at temperature 1."""
    return set(draw(build_sampler(Sampling(temperature=1.0, seed=3, **wanted)), count))


@pytest.mark.parametrize("wanted", [{}, {"temperature": 1e-6, "seed": 1}, {"temperature": 1.0, "top_p": 0.0}])
def test_what_can_only_be_the_most_likely_is_greedy_and_shared(wanted: dict[str, Any]) -> None:
    assert build_sampler(Sampling(**wanted)) is greedy_sampler


def test_a_seed_gives_the_same_draws_whatever_is_drawn_beside_it() -> None:
    alone = draw(build_sampler(Sampling(temperature=1.0, seed=11)), 40)
    ours, other = (build_sampler(Sampling(temperature=1.0, seed=seed)) for seed in (11, 12))
    beside = []
    for turn in range(40):
        mx.random.seed(turn)
        draw(other, turn % 3)
        beside += draw(ours, 1)
    assert beside == alone
    assert draw(build_sampler(Sampling(temperature=1.0, seed=12)), 40) != alone


@pytest.mark.parametrize("seed", [-1, 0, 2**63, 2**64 - 1, 2**80])
def test_any_integer_is_a_seed(seed: int) -> None:
    sampling = Sampling(temperature=1.0, seed=seed)
    assert draw(build_sampler(sampling), 20) == draw(build_sampler(sampling), 20)


def test_without_a_seed_no_two_requests_draw_alike() -> None:
    draws = {tuple(draw(build_sampler(Sampling(temperature=1.0)), 40)) for _ in range(5)}
    assert len(draws) == 5


def test_drawing_leaves_the_shared_random_state_alone() -> None:
    mx.random.seed(5)
    expected = mx.random.uniform(shape=(4,)).tolist()
    mx.random.seed(5)
    draw(build_sampler(Sampling(temperature=1.0, seed=1)), 3)
    assert mx.random.uniform(shape=(4,)).tolist() == expected


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    counts = Counter(draw(build_sampler(Sampling(temperature=1.0, seed=0)), 4000))
    assert [counts[token] / 4000 for token in range(4)] == pytest.approx(PROBABILITIES, abs=0.03)


def test_temperature_flattens_or_sharpens() -> None:
    hot, cold = (
        Counter(draw(build_sampler(Sampling(temperature=temperature, seed=0)), 1000)) for temperature in (4.0, 0.25)
    )
    assert hot[3] / 1000 == pytest.approx(0.19, abs=0.04)
    assert cold[0] / 1000 == pytest.approx(0.725, abs=0.05)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 4}, {0, 1, 2, 3}),
        ({"top_k": 99}, {0, 1, 2, 3}),
        ({"top_p": 0.65}, {0, 1}),
        ({"top_p": 0.1}, {0}),
        ({"min_p": 0.6}, {0, 1}),
        ({"top_p": 0.95, "top_k": 3, "min_p": 0.6}, {0, 1}),
    ],
)
def test_filters_leave_out_what_they_should(wanted: dict[str, Any], expected: set[int]) -> None:
    assert seen(**wanted) == expected


@settings(deadline=None)
@given(
    quarters=st.lists(st.integers(-32, 32), min_size=2, max_size=40),
    top_p=st.floats(0.01, 0.99),
    min_p=st.floats(0.01, 0.99),
)
def test_filters_keep_what_their_definitions_say(quarters: list[int], top_p: float, min_p: float) -> None:
    # Steps that are no rounding: who is equally likely is so in every precision.
    values = np.array(quarters) / 4
    probabilities = np.exp(values - values.max()) / np.exp(values - values.max()).sum()
    given_logprobs = mx.array([np.log(probabilities).tolist()])

    def kept(**wanted: float) -> set[int]:
        sampler = build_sampler(Sampling(temperature=1.0, seed=0, **wanted))  # type: ignore[arg-type]
        filtered = sampler._filter(given_logprobs)  # type: ignore[attr-defined]
        return {token for token, value in enumerate(filtered[0].tolist()) if value > -math.inf}

    likelier = {token: probabilities[probabilities > value].sum() for token, value in enumerate(probabilities)}
    if all(abs(mass - top_p) > 1e-5 for mass in likelier.values()):
        assert kept(top_p=top_p) == {token for token, mass in likelier.items() if mass < top_p}
    shares = probabilities / probabilities.max()
    if np.abs(shares - min_p).min() > 1e-5:
        assert kept(min_p=min_p) == set(np.flatnonzero(shares >= min_p).tolist())


def test_no_wish_needs_no_processor() -> None:
    assert build_processors(Sampling()) == []


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"logit_bias": {2: 5.0, 0: -1.0}}, [0.0, 1.0, 6.0, 1.0]),
        ({"presence_penalty": 0.5}, [1.0, 0.5, 1.0, 0.5]),
        ({"frequency_penalty": 0.5}, [1.0, 0.0, 1.0, 0.5]),
        ({"repetition_penalty": 2.0}, [1.0, 0.5, 1.0, 0.5]),
    ],
)
def test_biases_and_penalties_change_the_logits(wanted: dict[str, Any], expected: list[float]) -> None:
    logits = mx.ones((1, 4))
    for processor in build_processors(Sampling(**wanted)):
        logits = processor(mx.array([1, 3, 1]), logits)
    assert logits[0].tolist() == pytest.approx(expected)
