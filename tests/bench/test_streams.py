from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bench.streaming import Piece, streaming
from kakeya_ops.bench.streams import BackgroundStream, TimedStream, encode_stream_request, read_stream
from kakeya_ops.errors import PeerRefused, PeerUnreachable

BODY = encode_stream_request("m", {"prompt": "p", "max_tokens": 4})


def test_each_piece_of_text_has_its_time() -> None:
    asked: list[dict[str, Any]] = []

    def script(request: dict[str, Any]) -> Iterator[Piece]:
        asked.append(request)
        yield from ("a", "", {"choices": []}, {"choices": [{"text": None}]}, "b", "c")

    with streaming(script) as server:
        stream = read_stream(server, BODY)
    assert asked == [{"model": "m", "temperature": 0, "prompt": "p", "max_tokens": 4, "stream": True}]
    assert len(stream.arrivals) == 3
    assert stream.request_id == "r1"
    assert stream.ended is not None
    assert stream.began <= stream.arrivals[0] <= stream.arrivals[-1] <= stream.ended


@pytest.mark.parametrize(("arrivals", "rate"), [([], None), ([1.0], None), ([1.0, 1.0], None), ([1.0, 1.5, 2.0], 2.0)])
def test_the_rate_is_of_what_follows_the_first_piece(arrivals: list[float], rate: float | None) -> None:
    assert TimedStream(arrivals=arrivals).pieces_per_second == rate


def test_a_refusal_is_told_with_its_words() -> None:
    with streaming(lambda request: iter([{"error": "full"}]), status=429) as server:
        with pytest.raises(PeerRefused, match="status 429") as refused:
            read_stream(server, BODY)
        assert refused.value.status == 429


def test_an_error_within_the_stream_ends_it() -> None:
    with (
        streaming(lambda request: iter(["a", {"error": "broken"}])) as server,
        pytest.raises(PeerRefused, match="brok"),
    ):
        read_stream(server, BODY)


def test_nobody_answers() -> None:
    with streaming(lambda request: iter(())) as server:
        pass
    with pytest.raises(PeerUnreachable):
        read_stream(server, BODY)


def test_a_background_stream_ends_with_its_block() -> None:
    paced = threading.Event()

    def script(request: dict[str, Any]) -> Iterator[Piece]:
        for _ in itertools.count():
            yield "x"
            paced.wait(0.001)

    with streaming(script) as server, BackgroundStream(server, BODY) as running:
        assert running.wait(lambda timed: len(timed.arrivals) >= 5, 20)
        assert not running.over
    assert running.over
    assert running.error is None


def test_a_background_stream_that_ends_early_or_breaks_is_seen() -> None:
    with streaming(lambda request: iter("ab")) as server, BackgroundStream(server, BODY) as short:
        assert not short.wait(lambda timed: len(timed.arrivals) >= 5, 20)
    assert short.error is None
    with streaming(lambda request: iter(()), status=500) as server, BackgroundStream(server, BODY) as broken:
        assert not broken.wait(lambda timed: bool(timed.arrivals), 20)
    assert isinstance(broken.error, PeerRefused)
