from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.streaming import Piece, streaming
from bench.test_gaps import Decoder
from kakeya_ops.bench.compare import Comparing, Comparison, judge_comparisons
from kakeya_ops.bench.spread import Spread
from kakeya_ops.bench.texts import Texts


def slow(request: dict[str, Any]) -> Iterator[Piece]:
    """Each prompt takes a while before its first token."""
    time.sleep(0.1)
    yield from quick(request)


def quick(request: dict[str, Any]) -> Iterator[Piece]:
    for _ in range(request["max_tokens"]):
        time.sleep(0.001)
        yield "x"


def test_prompts_go_to_both_and_ratios_are_of_each_round() -> None:
    with streaming(quick) as ours, streaming(slow) as theirs:
        comparing = Comparing(ours, Texts(), lambda text: None)
        comparing.warm_up(theirs, 100)
        comparing.first_tokens(theirs, 100, rounds=2)
    found = {one.name: one for one in comparing.comparisons()}
    assert list(found) == ["first token, 100 tokens cold", "first token, 100 tokens again", "decode"]
    assert found["first token, 100 tokens cold"].ratio < 0.8
    assert found["decode"].ours.count == 2
    assert comparing.requests == 7  # one to warm up, three in each round
    assert comparing.notes == []


class Both(Decoder):
    """Takes the prompt about counting for the running stream, and any other for the cold one."""

    def __call__(self, request: dict[str, Any]) -> Iterator[Piece]:
        prompt = "running" if "Counting" in request["prompt"] else "cold"
        return super().__call__(request | {"prompt": prompt})


def test_gaps_are_compared() -> None:
    with streaming(Both(stall_seconds=0.1)) as ours, streaming(Both(stall_seconds=0.4)) as theirs:
        comparing = Comparing(ours, Texts(), lambda text: None)
        comparing.gaps(theirs, 2048, 1, of="by default")
    longest, _ = comparing.comparisons()
    assert longest.name == "longest gap beside 2048 cold tokens, by default"
    assert longest.ratio < 1
    assert comparing.requests == 2


def test_what_one_side_refuses_is_noted_and_not_compared() -> None:
    with streaming(quick) as ours, streaming(quick, status=400) as theirs:
        comparing = Comparing(ours, Texts(), lambda text: None)
        comparing.first_tokens(theirs, 100, 1)
        comparing.gaps(theirs, 6144, 1, of="by default")
    assert comparing.comparisons() == ()
    assert "status 400" in comparing.notes[0]
    assert comparing.notes[-1].startswith("a stream beside 6144 cold tokens, by default: not measured")


def test_silence_is_no_first_token() -> None:
    with streaming(lambda request: iter(())) as silent:
        comparing = Comparing(silent, Texts(), lambda text: None)
        comparing.first_tokens(silent, 100, 1)
    assert all("not measured" in note for note in comparing.notes)
    assert len(comparing.notes) == 3


def test_that_time_is_up_is_noted_once() -> None:
    with streaming(quick) as server:
        comparing = Comparing(server, Texts(), lambda text: None)
    assert comparing.in_time(time.monotonic() + 100)
    assert not comparing.in_time(time.monotonic() - 1)
    assert not comparing.in_time(time.monotonic() - 1)
    assert comparing.notes == ["time was up before all was compared with mlx-lm"]


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("longest gap beside 2048 cold tokens, plain", ("gap", "beside 2048 cold tokens, plain")),
        ("99 % of gaps beside 2048 cold tokens, cut", ("gap_p99", "beside 2048 cold tokens, cut")),
        ("99 % of gaps beside 2048 cold tokens, plain", None),
        ("longest gap beside 2048 cold tokens, cut", None),
        ("decode", None),
    ],
)
def test_the_targets_are_about_the_longest_by_default_and_the_others_in_pieces(
    name: str, target: tuple[str, str] | None
) -> None:
    side = Spread(1.0, 1.0, 1.0, 1)
    found = judge_comparisons((Comparison(name, "s", side, side, 0.5),), "plain", "cut")
    assert [(one.kind.name, one.of, one.value) for one in found] == ([(*target, 0.5)] if target else [])
