from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bench.streaming import Piece, streaming
from kakeya_ops.bench.gaps import Directed, gaps_between, measure_interruption, summarize_gaps
from kakeya_ops.bench.samples import NotMeasured
from kakeya_ops.bench.streams import encode_stream_request
from kakeya_ops.errors import PeerRefused

COLD = encode_stream_request("m", {"prompt": "cold", "max_tokens": 1})


RUNNING = Directed(encode_stream_request("m", {"prompt": "running", "max_tokens": 4096}))


def newcomer() -> Directed:
    return Directed(COLD, {"X-Directive": "d"})


class Decoder:
    """Decodes one stream until it has `pieces`, and meanwhile answers the cold prompt after `stall_seconds`.

    Only the cold prompt holds it up.
    """

    def __init__(self, pieces: int | None = None, stall_seconds: float = 0.2, said: str = "x") -> None:
        self.pieces = pieces
        self.stall_seconds = stall_seconds
        self.said = said
        self._free = threading.Event()
        self._free.set()

    def __call__(self, request: dict[str, Any]) -> Iterator[Piece]:
        if request["prompt"] == "cold":
            self._free.clear()
            threading.Event().wait(self.stall_seconds)
            self._free.set()
            yield self.said
            return
        for _ in range(self.pieces) if self.pieces else itertools.count():
            self._free.wait(20)
            threading.Event().wait(0.002)
            yield "y"


def test_a_stream_that_stands_still_meanwhile_is_measured() -> None:
    with streaming(Decoder()) as server:
        found = measure_interruption(server, RUNNING, newcomer)
    assert found.during.longest_seconds >= 0.15
    assert found.before.median_seconds < 0.1
    assert found.before.count >= 60
    assert found.newcomer.request_id == "r1"


def test_a_stream_that_ends_too_early_tells_nothing() -> None:
    with streaming(Decoder(pieces=9)) as server, pytest.raises(NotMeasured, match="after 9 pieces"):
        measure_interruption(server, RUNNING, newcomer)


def test_a_stream_that_ends_before_the_newcomer_is_through_tells_nothing() -> None:
    decoder = Decoder(pieces=72)
    with streaming(decoder) as server, pytest.raises(NotMeasured, match="before the cold prompt"):
        measure_interruption(server, RUNNING, newcomer)


def test_a_newcomer_without_text_tells_nothing() -> None:
    with streaming(Decoder(said="")) as server, pytest.raises(NotMeasured, match="no text"):
        measure_interruption(server, RUNNING, newcomer)


def test_a_refused_stream_is_an_error() -> None:
    with streaming(lambda request: iter(()), status=503) as server, pytest.raises(PeerRefused):
        measure_interruption(server, RUNNING, newcomer)


def test_gaps_that_reach_into_the_time_count() -> None:
    arrivals = [0.0, 1.0, 3.0, 4.0, 9.0]
    assert gaps_between(arrivals, 2.0, 3.5) == [2.0, 1.0]
    assert gaps_between(arrivals, 9.0, 9.5) == []


def test_gaps_are_summed_up() -> None:
    found = summarize_gaps([0.1] * 99 + [5.0])
    assert (found.count, found.median_seconds, found.p99_seconds, found.longest_seconds) == (100, 0.1, 0.1, 5.0)
    with pytest.raises(NotMeasured):
        summarize_gaps([])
