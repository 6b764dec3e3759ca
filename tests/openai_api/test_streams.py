from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from kakeya_ops.engine.engine import Engine
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.settings import ApiLimits, ApiSettings
from kakeya_ops.openai_api.streams import prefix_headers, timed_out
from kakeya_ops.serving.contract import PrefixReady
from openai_api.fronts import Front, LocalHead, Serve, serve_app

BODY = {"prompt": "Once", "max_tokens": 3, "stream": True}


@pytest.fixture
def impatient(serve: Serve) -> Iterator[Front]:
    """A front that sends its headers at once and a sign of life every few milliseconds."""
    front = serve(ApiSettings(limits=ApiLimits(header_seconds=0.01, keep_alive_seconds=0.02)))
    front.head.prefix = PrefixReady(7, "abc", 2)
    front.head.hold_prefix = threading.Event()
    yield front
    front.head.hold_prefix.set()


def test_a_stream_says_where_its_prefix_came_from_before_any_text(front: Front) -> None:
    with front.http.stream("POST", "/v1/completions", json=BODY) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["X-Kakeya-Receipt"] == "d" * 64
        assert answer.headers["X-Kakeya-Cached-Tokens"] == "0"
        assert "X-Kakeya-Forgotten-Tokens" not in answer.headers
        assert ": receipt" not in answer.read().decode()


def test_a_late_receipt_is_a_comment_before_the_end(impatient: Front) -> None:
    assert impatient.head.hold_prefix is not None
    with impatient.http.stream("POST", "/v1/completions", json=BODY) as answer:
        assert "X-Kakeya-Receipt" not in answer.headers
        lines = answer.iter_lines()
        waited = next(line for line in lines if line == ": waiting")
        impatient.head.hold_prefix.set()
        rest = list(lines)
    assert waited
    end = rest.index(": receipt abc")
    assert rest[end : end + 5] == [": receipt abc", ": cached-tokens 7", ": forgotten-tokens 2", "", "data: [DONE]"]
    assert sum(line.startswith("data: {") for line in rest) == 3


def test_openais_client_does_not_see_the_comments(impatient: Front) -> None:
    assert impatient.head.hold_prefix is not None
    impatient.head.hold_prefix.set()
    assert len("".join(chunk.choices[0].text for chunk in impatient.complete(stream=True))) == 8


def test_openais_client_waits_for_a_prefill_that_is_longer_than_its_patience(impatient: Front) -> None:
    """Its timeout counts from byte to byte, so that comments keep it waiting."""
    held = impatient.head.hold_prefix
    assert held is not None
    release = threading.Timer(0.8, held.set)
    release.start()
    try:
        chunks = list(impatient.complete(stream=True, timeout=0.3))
    finally:
        release.join()
    assert len("".join(chunk.choices[0].text for chunk in chunks)) == 8


def test_a_long_prompt_shows_its_progress(impatient: Front) -> None:
    body = BODY | {"prompt": "x" * 640}
    assert impatient.head.hold_prefix is not None
    impatient.head.hold_prefix.set()
    text = impatient.http.post("/v1/completions", json=body).text
    progress = [line for line in text.splitlines() if line.startswith(": prefill ")]
    assert len(progress) > 1
    assert progress[-1] == ": prefill 639/639"


def test_a_stream_that_takes_too_long_ends_with_an_error_and_without_done(serve: Serve) -> None:
    front = serve(ApiSettings(limits=ApiLimits(request_seconds=0.5)))
    text = front.http.post("/v1/completions", json=BODY | {"max_tokens": 8000}).text
    last = text.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "request_timeout"
    assert "[DONE]" not in text
    with pytest.raises(openai.APIError, match=r"longer than 0\.5 s"):
        list(front.complete(max_tokens=8000, stream=True))


def test_a_client_that_leaves_ends_its_request_within_a_step(serve: Serve) -> None:
    front = serve(ApiSettings())
    with front.http.stream("POST", "/v1/completions", json=BODY | {"max_tokens": 8000}) as answer:
        next(answer.iter_lines())
    assert front.head.cancelled.wait(5)
    front.head.engine.call(lambda: None)  # one step
    assert front.head.engine.decoding == 0
    assert front.complete(max_tokens=1).usage.completion_tokens == 1


def test_a_client_that_leaves_before_its_whole_answer_ends_its_request_too(serve: Serve) -> None:
    front = serve(ApiSettings())
    impatient = httpx.Client(base_url=front.http.base_url, timeout=httpx.Timeout(30, read=0.2))
    with impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post("/v1/completions", json={"prompt": "Once", "max_tokens": 8000})
    assert front.head.decoding.is_set()
    assert front.head.cancelled.wait(5)
    front.head.engine.call(lambda: None)
    assert front.head.engine.decoding == 0


def test_a_client_that_leaves_during_a_long_prompt_ends_its_request(impatient: Front) -> None:
    with impatient.http.stream("POST", "/v1/completions", json=BODY | {"prompt": "x" * 8000}):
        pass
    assert impatient.head.cancelled.wait(5)
    assert not impatient.head.decoding.is_set()


def test_headers_need_a_prefix() -> None:
    assert prefix_headers(None) == {}


def test_a_timeout_names_the_limit() -> None:
    assert timed_out(ApiLimits(request_seconds=2.5)).message == "the answer took longer than 2.5 s"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_the_end_of_the_server_cuts_off_says_so(
    engine: Engine, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    head = LocalHead(engine)
    body = BODY | {"max_tokens": 8000, "stream": stream}
    with ThreadPoolExecutor(1) as client, serve_app(make_openai_app(head, ApiSettings()), drain_seconds=1) as port:
        url = f"http://127.0.0.1:{port}/v1/completions"
        answered = client.submit(httpx.post, url, json=body, timeout=30)
        assert head.decoding.wait(20)
    answer = answered.result(20)
    assert answer.status_code == (200 if stream else 503)
    last = answer.text.splitlines()[-2].removeprefix("data: ") if stream else answer.text
    assert json.loads(last)["error"]["code"] == "server_stopping"
    assert head.cancelled.is_set()
    assert not [record for record in caplog.records if record.exc_info and "cut off" not in record.message]
