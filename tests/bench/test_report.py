from __future__ import annotations

import json
from typing import Any

import pytest

from bench.taken import sample_of
from kakeya_ops.bench.crossover import Crossover
from kakeya_ops.bench.report import (
    BenchReport,
    measured_crossover,
    summarize_link,
    summarize_local,
    summarize_worker,
)
from kakeya_ops.bench.targets import KINDS, Target

SAMPLES = [
    sample_of("local", 2000, 4.0),
    sample_of("local", 1000, 2.0),
    sample_of("local", 1000, 1.0),
    sample_of("hot_hit", 1000, 0.1),
    sample_of("remote", 1000, 1.6),
    sample_of("remote", 2000, 2.0),
    sample_of("remote_hit", 1000, 0.2),
]


def report(**changes: Any) -> BenchReport:
    values: dict[str, Any] = {
        "url": "http://head",
        "head": "head",
        "rounds": 2,
        "lengths": (1000, 2000),
        "seconds": 9.0,
        "local": summarize_local(SAMPLES),
        "workers": (),
    }
    return BenchReport(**(values | changes))


def test_local_lines_are_by_length_with_their_medians() -> None:
    short, long = summarize_local(SAMPLES)
    assert (short.length, short.prompt_tokens, long.length) == (1000, 1001, 2000)
    assert short.first_token is not None
    assert (short.first_token.median, short.first_token.count) == (1.5, 2)
    assert short.hot_first_token is not None
    assert short.tokens_per_second is not None
    assert short.tokens_per_second.median == pytest.approx(2000.0)
    assert long.hot_first_token is None


def test_worker_lines_have_what_it_held_too() -> None:
    short, long = summarize_worker(SAMPLES)
    assert short.hit_first_token is not None
    assert (short.hit_first_token.median, short.hit_bytes) == (0.2, 1_000_000)
    assert (long.hit_first_token, long.hit_bytes) == (None, None)


def test_the_crossover_lies_between_the_medians() -> None:
    found = measured_crossover(summarize_local(SAMPLES), summarize_worker(SAMPLES))
    assert found == Crossover("at", pytest.approx(1001 + 1000 * 0.1 / 2.1))


def test_a_length_that_only_one_side_has_counts_for_nothing() -> None:
    assert measured_crossover(summarize_local(SAMPLES[:1]), summarize_worker(SAMPLES[4:5])) is None


def test_a_link_is_what_the_head_uses_and_what_came_over_it() -> None:
    link = {"network": "cable", "address": "10.0.0.1", "port": 5, "rtt_seconds": 0.001, "bytes_per_second": 1e6}
    line = summarize_link(link, [sample_of("remote_hit")])
    assert (line.network, line.estimated, line.raw) == ("cable", 1e6, None)
    assert line.measured is not None
    assert line.measured.median == pytest.approx(1e7)
    assert summarize_link(None, []).address == ""


def test_a_run_passes_if_something_was_measured_and_all_demands_are_met() -> None:
    assert report().passed
    assert not report(local=()).passed
    assert report(targets=(Target(KINDS["hit"], "w", 9.0),)).passed  # nobody demanded it
    assert not report(targets=(Target(KINDS["hit"], "w", 9.0, demanded=True),)).passed
    assert not report(targets=(Target(KINDS["hit"], "w", None, demanded=True),)).passed  # unknown is no yes


def test_it_is_one_plain_document() -> None:
    document = json.loads(json.dumps(report().to_json()))
    assert document["passed"] is True
    assert document["local"][0]["first_token"] == {"median": 1.5, "low": 1.0, "high": 2.0, "count": 2}
