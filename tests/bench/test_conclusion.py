from __future__ import annotations

from typing import Any

import pytest

from bench.taken import sample_of
from kakeya_ops.bench.conclusion import (
    conclude_worker,
    longest_hits,
    prefill_seconds,
    samples_of_now,
    with_prediction,
)
from kakeya_ops.bench.report import WorkerResult, summarize_local

SAMPLES = [
    sample_of("local", 1000, 1.0),
    sample_of("local", 2000, 4.0),
    sample_of("remote", 1000, 2.0),
    sample_of("remote", 2000, 2.0, compute_seconds=1.9),
    sample_of("remote", 2000, 2.0, node="other"),
    sample_of("remote_hit", 1000, 0.2),
    sample_of("remote_hit", 2000, 0.3),
]


def result() -> WorkerResult:
    return conclude_worker("worker", SAMPLES, summarize_local(SAMPLES), None)


def test_a_worker_is_judged_by_its_own_samples() -> None:
    found = result()
    assert (found.node, found.epoch, [line.length for line in found.lines]) == ("worker", 7, [1000, 2000])
    assert found.crossover is not None
    assert found.crossover.tokens == pytest.approx(1001 + 1000 / 3)
    assert found.lines[1].first_token is not None
    assert found.lines[1].first_token.count == 1


def test_nothing_is_said_of_a_worker_without_samples() -> None:
    found = conclude_worker("absent", SAMPLES, summarize_local(SAMPLES), None)
    assert (found.lines, found.crossover, found.epoch) == ((), None, 0)


def test_an_earlier_process_of_a_worker_is_forgotten() -> None:
    kept = samples_of_now([*SAMPLES, sample_of("remote", epoch=6)], {"worker": 7, "head": 1})
    assert kept == SAMPLES
    assert [one.kind for one in samples_of_now(SAMPLES, {"worker": 8, "other": 8})] == ["local", "local"]


@pytest.mark.parametrize(
    ("estimates", "predicts", "tokens", "ratio"),
    [
        ({"peers": [{"node": "worker", "crossover_tokens": 1334}]}, True, 1334, pytest.approx(1.0, abs=1e-3)),
        ({"peers": [{"node": "worker", "crossover_tokens": None}]}, True, None, None),
        ({"peers": [{"node": "other", "crossover_tokens": 5}]}, False, None, None),
        ({"peers": [{"node": "worker"}]}, False, None, None),
        ({}, False, None, None),
        (None, False, None, None),
    ],
)
def test_the_heads_prediction_stands_beside_what_was_measured(
    estimates: dict[str, Any] | None, predicts: bool, tokens: int | None, ratio: Any
) -> None:
    found = with_prediction(result(), estimates)
    assert (found.predicts, found.predicted_tokens, found.prediction_ratio) == (predicts, tokens, ratio)


def test_the_longest_hits_show_the_link_best() -> None:
    assert longest_hits(SAMPLES) == SAMPLES[-1:]
    assert longest_hits([]) == []


def test_pure_prefill_is_of_one_worker_and_length() -> None:
    assert prefill_seconds("worker", 2000, SAMPLES) == 1.9
    assert prefill_seconds("worker", 4000, SAMPLES) is None
