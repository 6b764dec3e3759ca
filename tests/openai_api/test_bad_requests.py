"""Requests that end, hang or confuse mlx-lm's own server: each gets its proper answer here, and the engine lives."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from kakeya_ops.openai_api.settings import ApiLimits, ApiSettings
from openai_api.fronts import MODEL, Front, Serve

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
USER = {"role": "user", "content": "Hello"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Bad:
    """`parameters` over a good body of `path`, and the answer that they deserve."""

    path: str
    parameters: dict[str, Any]
    status: int = 400
    param: str | None = None
    code: str | None = None


def chat(status: int = 400, param: str | None = None, code: str | None = None, **parameters: Any) -> Bad:
    return Bad(CHAT, parameters, status, param or next(iter(parameters)), code)


def text(status: int = 400, param: str | None = None, code: str | None = None, **parameters: Any) -> Bad:
    return Bad(TEXT, parameters, status, param or next(iter(parameters)), code)


def image(url: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def called(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]


PART = "messages[0].content[0].type"

# The generation thread of mlx-lm's server dies of these.
DEADLY = {
    "prompt-empty": text(prompt=""),
    "prompt-list-of-empty": text(prompt=[""]),
    "prompt-two-strings": text(prompt=["a", "b"]),
    "top_k-5000": text(top_k=5000, temperature=1),
    "top_k-a-billion": text(top_k=1_000_000_000, temperature=1),
    "stop-number": chat(stop=5),
    "stop-list-of-number": chat(stop=[5]),
    "logit_bias-beyond-vocabulary": chat(logit_bias={"999999": 5}),
}
# It drops the connection, or hangs.
SILENT = {
    "logit_bias-null": chat(logit_bias={"5": None}),
    "logit_bias-no-token": chat(logit_bias={"five": 1}),
    "logit_bias-too-large": chat(logit_bias={"5": 101}),
    "seed-2**70": chat(seed=2**70),
    "temperature-nan": chat(temperature=float("nan")),
    "temperature-infinite": chat(temperature=float("inf")),
}
# It answers 404, with Python's own words.
MISNAMED = {
    "messages-empty": chat(messages=[]),
    "messages-null": chat(messages=None),
    "messages-string": chat(messages="Hello"),
    "message-without-role": chat(param="messages[0].role", messages=[{"content": "Hello"}]),
    "message-unknown-role": chat(param="messages[0].role", messages=[{"role": "robot", "content": "Hello"}]),
    "content-number": chat(param="messages[0].content", messages=[{"role": "user", "content": 5}]),
    "content-missing": chat(param="messages[0].content", messages=[{"role": "user"}]),
    "content-unknown-part": chat(
        param=PART, code="unsupported_parameter", messages=[{"role": "user", "content": [{"type": "smell"}]}]
    ),
    "content-untyped-part": chat(param=PART, messages=[{"role": "user", "content": [{"text": "Hello"}]}]),
    "content-image": chat(param=PART, code="unsupported_parameter", messages=image("http://127.0.0.1:9/x.png")),
    "content-inline-image": chat(param=PART, code="unsupported_parameter", messages=image("data:image/png;base64,AA")),
    "prompt-null": text(prompt=None),
    "prompt-number": text(prompt=42),
    "prompt-no-ids": text(prompt=[]),
    "prompt-ids-of-another-vocabulary": text(prompt=[5, 300_000]),
    "prompt-negative-ids": text(prompt=[5, -1]),
    "prompt-bool-ids": text(prompt=[True]),
    "tools-number": chat(tools=5),
    "tool-without-function": chat(param="tools[0].function", tools=[{"type": "function"}]),
    "chat_template_kwargs-number": chat(chat_template_kwargs=5),
    "chat_template_kwargs-reserved": chat(chat_template_kwargs={"add_generation_prompt": False}),
    "tool_calls-bad-json": chat(param="messages[1].tool_calls[0].function.arguments", messages=called('{"city": "Par')),
    "tool_calls-no-object": chat(param="messages[1].tool_calls[0].function.arguments", messages=called("[1]")),
    "model-unknown": chat(404, code="model_not_found", model="gpt-4"),
    "model-number": chat(model=5),
}
# It accepts these.
IGNORED = {
    "max_tokens-true": chat(max_tokens=True),
    "max_tokens-zero": text(max_tokens=0),
    "max_tokens-negative": text(max_tokens=-1),
    "max_tokens-fraction": text(max_tokens=1.5),
    "max_tokens-string": text(max_tokens="5"),
    "max_tokens-beyond-context": text(code="context_length_exceeded", max_tokens=8192),
    "adapters": chat(code="unknown_parameter", adapters="/nope"),
    "stop-empty-string": chat(stop=[""]),
    "stop-object": chat(stop={"a": 1}),
    "stop-five": chat(stop=["a", "b", "c", "d", "e"]),
    "stream_options-string": chat(stream_options="x", stream=True),
    "stream_options-without-stream": chat(stream_options={"include_usage": True}),
    "stream-string": chat(stream="yes"),
    "prompt-beyond-context": text(code="context_length_exceeded", prompt="x" * 20_000),
    "messages-beyond-context": chat(
        code="context_length_exceeded", messages=[{"role": "user", "content": "x" * 20_000}]
    ),
    "prompt-beyond-any-tokenization": text(code="context_length_exceeded", prompt="x" * 500_000),
    "messages-beyond-any-tokenization": chat(
        code="context_length_exceeded", messages=[{"role": "user", "content": "x" * 500_000}]
    ),
    "parallel_tool_calls-string": chat(parallel_tool_calls="x"),
    "metadata-number": chat(metadata=1),
    "user-number": text(user=1),
    "temperature-negative": text(temperature=-1),
    "temperature-hot": text(temperature=3),
    "temperature-string": text(temperature="hot"),
    "top_p-large": text(top_p=1.5),
    "top_k-negative": text(top_k=-1),
    "min_p-large": text(min_p=2),
    "presence_penalty-large": text(presence_penalty=5),
    "n-two": chat(code="unsupported_parameter", n=2),
    "best_of-two": text(code="unsupported_parameter", best_of=2),
    "echo": text(code="unsupported_parameter", echo=True),
    "suffix": text(code="unsupported_parameter", suffix="!"),
    "logprobs-string": chat(logprobs="yes"),
    "logprobs-six": text(logprobs=6),
    "top_logprobs-21": chat(logprobs=True, param="top_logprobs", top_logprobs=21),
    "top_logprobs-alone": chat(top_logprobs=2),
    "response_format-schema": chat(
        code="unsupported_parameter", response_format={"type": "json_schema", "json_schema": {"name": "x"}}
    ),
    "response_format-object": chat(code="unsupported_parameter", response_format={"type": "json_object"}),
    "tool_choice-required": chat(code="unsupported_parameter", tool_choice="required"),
    "tool_choice-unknown": chat(tool_choice="maybe"),
    "tool-message-without-call": chat(
        param="messages[1].tool_call_id", messages=[USER, {"role": "tool", "content": "5"}]
    ),
    "max_tokens-twice": chat(max_completion_tokens=5, param="max_tokens", max_tokens=5),
}
TABLE = DEADLY | SILENT | MISNAMED | IGNORED


def good_body(path: str) -> dict[str, Any]:
    prompt = {"messages": [USER]} if path == CHAT else {"prompt": "Once"}
    return {"model": MODEL, "max_tokens": 2} | prompt


def send(front: Front, path: str, content: bytes | str, headers: dict[str, str] | None = None) -> httpx.Response:
    return front.http.post(path, content=content, headers=JSON | (headers or {}))


def assert_alive(front: Front) -> None:
    assert front.complete(max_tokens=1).usage.completion_tokens == 1
    assert front.http.get("/health").status_code == 200


@pytest.mark.parametrize("name", TABLE)
def test_it_is_refused_by_name_and_the_engine_lives(front: Front, name: str) -> None:
    bad = TABLE[name]
    answer = send(front, bad.path, json.dumps(good_body(bad.path) | bad.parameters))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (bad.status, bad.param)
    assert error["code"] == (bad.code or "invalid_value")
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in error["message"]
    assert "object is not" not in error["message"]
    assert answer.headers["X-Request-Id"]
    assert_alive(front)


BROKEN: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "nothing": (b"", {}, 400, "invalid_json"),
    "no-json": (b"{nope", {}, 400, "invalid_json"),
    "bad-utf-8": (b'{"prompt": "\xff\xfe"}', {}, 400, "invalid_json"),
    "lone-surrogate": (rb'{"prompt": "\ud800"}', {}, 400, "invalid_json"),
    "list": (b"[]", {}, 400, "invalid_json"),
    "number": (b"5", {}, 400, "invalid_json"),
    "depth": (b'{"prompt": ' + b"[" * 100_000, {}, 400, "invalid_json"),
    "huge-number": (b'{"seed": 1' + b"0" * 10_000 + b"}", {}, 400, "invalid_json"),
    "form": (b"prompt=x", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
    "latin-1": (b"{}", {"Content-Type": "application/json; charset=latin-1"}, 415, "unsupported_media_type"),
    "gzip": (b"{}", {"Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_body_that_is_no_json_object_is_refused(front: Front, name: str) -> None:
    content, headers, status, code = BROKEN[name]
    answer = send(front, TEXT, content, headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert_alive(front)


def test_of_equal_keys_the_last_counts(front: Front) -> None:
    answer = send(front, TEXT, f'{{"model": "{MODEL}", "prompt": "x", "max_tokens": 5, "max_tokens": 2}}')
    assert answer.json()["usage"]["completion_tokens"] == 2


def test_a_prompt_that_equals_an_earlier_one_with_its_answer(front: Front) -> None:
    first = front.complete(prompt="Continue", max_tokens=8).choices[0].text
    whole = front.complete(prompt="Continue", max_tokens=16).choices[0].text
    assert front.complete(prompt="Continue" + first, max_tokens=8).choices[0].text == whole[len(first) :]


def test_token_ids_that_equal_an_earlier_prompt_with_its_answer(front: Front) -> None:
    prompt = front.head.text.encode("Continue")
    first = front.complete(prompt=prompt, max_tokens=8).choices[0].text
    tokens = prompt + front.head.text.encode(first)
    assert len(front.complete(prompt=tokens, max_tokens=8).choices[0].text) == 8


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**63 - 1])
def test_every_64_bit_seed_is_accepted(front: Front, seed: int) -> None:
    texts = {front.complete(seed=seed, temperature=1, max_tokens=16).choices[0].text for _ in range(2)}
    assert len(texts) == 1


def test_stream_options_may_be_empty(front: Front) -> None:
    answer = send(front, CHAT, json.dumps(good_body(CHAT) | {"stream": True, "stream_options": {}}))
    assert answer.status_code == 200
    assert "usage" not in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


ROUTES: dict[str, tuple[Callable[[httpx.Client], httpx.Response], int, str]] = {
    "unknown": (lambda http: http.post("/v1/embeddings", json={}), 404, "not_found"),
    "method": (lambda http: http.get(TEXT), 405, "method_not_allowed"),
    "model": (lambda http: http.get("/v1/models/org/other"), 404, "model_not_found"),
}


@pytest.mark.parametrize("name", ROUTES)
def test_other_routes_have_the_same_error_form(front: Front, name: str) -> None:
    ask, status, code = ROUTES[name]
    answer = ask(front.http)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["X-Request-Id"]


def test_no_url_is_ever_fetched(front: Front) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/x.png"
        send(front, CHAT, json.dumps(good_body(CHAT) | {"messages": image(url)}))
        assert_alive(front)
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_an_unknown_model_changes_nothing(front: Front) -> None:
    before = front.complete().choices[0].text
    send(front, TEXT, json.dumps(good_body(TEXT) | {"model": "other"}))
    assert front.complete().choices[0].text == before
    assert [model.id for model in front.client.models.list()] == [MODEL]


def test_a_body_may_not_be_larger_than_the_limit(serve: Serve) -> None:
    front = serve(ApiSettings(limits=ApiLimits(body_bytes=1000)))
    body = json.dumps(good_body(TEXT) | {"prompt": "x" * 1000}).encode()
    chunked = front.http.post(TEXT, content=iter([body[:500], body[500:]]), headers=JSON)
    for answer in (send(front, TEXT, body), chunked):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert_alive(front)
