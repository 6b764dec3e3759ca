"""The whole front, asked by OpenAI's own client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.errors import EngineBusy, EngineDead, RemoteRequired
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.requests import ChatBody, TextBody
from kakeya_ops.openai_api.settings import ApiLimits, ApiSettings
from kakeya_ops.secret import Secret
from kakeya_ops.serving.contract import PrefixReady
from kakeya_ops.wire.nonces import NonceBook
from kakeya_ops.wire.signing import (
    DIRECTIVE_HEADER,
    Directive,
    body_digest,
    new_nonce,
    sign_directive,
    verify_directive,
)
from openai_api.fronts import MODEL, Front, Serve

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
KEY = "anna-0123456789abcdef"


def test_a_chat(front: Front) -> None:
    answer = front.chat()
    assert len(answer.choices[0].message.content) == 8
    assert answer.choices[0].finish_reason == "length"
    assert answer.model == MODEL
    assert (answer.usage.completion_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (8, 0)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8


def test_a_streamed_chat_is_the_same_text(front: Front) -> None:
    whole = front.chat(max_tokens=20).choices[0].message.content
    chunks = list(front.chat(max_tokens=20, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["length"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_text_completion_whole_and_streamed(front: Front) -> None:
    whole = front.complete(max_tokens=20).choices[0]
    chunks = list(front.complete(max_tokens=20, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    assert (chunks[-1].choices[0].finish_reason, whole.finish_reason) == ("length", "length")


@pytest.mark.parametrize("ask", [Front.chat, Front.complete])
def test_a_stream_ends_with_the_usage_if_it_is_wanted(front: Front, ask: Callable[..., Any]) -> None:
    chunks = list(ask(front, stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 8


def test_a_tool_call(front: Front) -> None:
    answer = front.chat(tools=[TOOL], max_tokens=50).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    (call,) = answer.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})


def test_a_streamed_tool_call(front: Front) -> None:
    chunks = list(front.chat(tools=[TOOL], max_tokens=50, stream=True))
    (call,) = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert (call.index, call.function.name, json.loads(call.function.arguments)) == (
        0,
        "get_weather",
        {"city": "Paris"},
    )
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_the_answer_of_a_tool_goes_back_to_the_model(front: Front) -> None:
    question = {"role": "user", "content": "How is the weather?"}
    call = front.chat(messages=[question], tools=[TOOL], max_tokens=50).choices[0].message
    result = {"role": "tool", "content": "Rain", "tool_call_id": call.tool_calls[0].id}
    messages = [question, call.model_dump(exclude_none=True), result]
    assert front.chat(messages=messages, tools=[TOOL]).choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_call_that_max_tokens_cuts_is_no_call_and_no_text(front: Front, stream: bool) -> None:
    answer = front.chat(tools=[TOOL], max_tokens=3, stream=stream)
    if stream:
        pieces = [chunk.choices[0] for chunk in answer]
        assert not any(piece.delta.content or piece.delta.tool_calls for piece in pieces)
        assert pieces[-1].finish_reason == "length"
    else:
        choice = answer.choices[0]
        assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("length", "", None)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_answer_before_it(front: Front, stream: bool) -> None:
    whole = front.complete(max_tokens=40).choices[0].text
    stop = whole[20:23]
    answer = front.complete(max_tokens=4000, stop=["\u00e9", stop], stream=stream)
    text = "".join(chunk.choices[0].text for chunk in answer) if stream else answer.choices[0].text
    assert text == whole[: whole.index(stop)]
    front.head.engine.call(lambda: None)
    assert front.head.engine.decoding == 0


def test_a_seed_repeats_an_answer_whatever_else_is_asked(front: Front) -> None:
    def sample(seed: int) -> str:
        return str(front.complete(temperature=1.5, seed=seed, max_tokens=30).choices[0].text)

    first = sample(7)
    front.complete(temperature=1)
    assert sample(7) == first
    assert sample(8) != first


def test_logprobs_of_a_chat(front: Front) -> None:
    entries = front.chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    streamed = front.chat(logprobs=True, top_logprobs=2, stream=True)
    assert len(entries) == 8
    for entry in entries:
        assert entry.top_logprobs[0].token == entry.token  # greedy
        assert bytes(entry.bytes).decode() == entry.token
        assert entry.top_logprobs[1].logprob <= entry.logprob <= 0
    content = [e for chunk in streamed if chunk.choices[0].logprobs for e in chunk.choices[0].logprobs.content]
    assert [entry.token for entry in content] == [entry.token for entry in entries]


def test_logprobs_of_a_text(front: Front) -> None:
    choice = front.complete(logprobs=3).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.text_offset == list(range(8))
    assert [len(top) for top in choice.logprobs.top_logprobs] == [3] * 8


def test_logprobs_leave_out_the_stop_string(front: Front) -> None:
    whole = front.complete(max_tokens=40).choices[0].text
    choice = front.complete(max_tokens=40, logprobs=0, stop=whole[20:23]).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text


def test_the_prefix_is_in_the_headers_and_in_the_usage(serve: Serve) -> None:
    front = serve(ApiSettings())
    front.head.prefix = PrefixReady(12, "abc", 3)
    raw = front.client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], max_tokens=2
    )
    assert raw.headers["X-Kakeya-Receipt"] == "abc"
    assert raw.headers["X-Kakeya-Cached-Tokens"] == "12"
    assert raw.headers["X-Kakeya-Forgotten-Tokens"] == "3"
    answer = raw.parse()
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 12
    assert answer.id == f"chatcmpl-{raw.headers['X-Request-Id']}"
    assert front.head.requests[0].decode.request_id == raw.headers["X-Request-Id"]


def test_there_is_one_model(serve: Serve) -> None:
    front = serve(ApiSettings(cache=CacheSettings(sink=4, window=256)))
    (model,) = front.client.models.list()
    shown = front.client.models.retrieve(MODEL).model_dump()
    assert model.model_dump() == shown
    assert (shown["id"], shown["context_length"]) == (MODEL, 8192)
    assert shown["cache"] == {"sink_tokens": 4, "window_tokens": 256}
    with pytest.raises(openai.NotFoundError):
        front.client.models.retrieve("other")


def test_health_is_the_engines(front: Front) -> None:
    assert front.http.get("/health").json() == front.http.get("/healthz").json() == {"status": "ok"}


def test_keys_map_to_tenants(serve: Serve) -> None:
    front = serve(ApiSettings(keys=ApiKeys({KEY: "family"})), key=KEY)
    front.complete()
    assert front.head.requests[-1].tenant == "family"
    assert front.http.get("/health").status_code == 200
    for path in ("/v1/models", f"/v1/models/{MODEL}"):
        assert front.http.get(path).status_code == 401
    refused = front.http.post("/v1/completions", headers={"Authorization": "Bearer wrong"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert refused.headers["WWW-Authenticate"] == "Bearer"
    with pytest.raises(openai.AuthenticationError):
        front.client.with_options(api_key="wrong").models.list()
    assert len(front.head.requests) == 1


def test_without_keys_there_is_one_tenant(serve: Serve) -> None:
    front = serve(ApiSettings(default_tenant="home"))
    front.complete()
    assert front.head.requests[-1].tenant == "home"


def test_a_signed_directive_reaches_the_head(serve: Serve) -> None:
    secret, nonces = Secret(b"k" * 32), NonceBook()

    def verify(value: str, body: bytes) -> Directive:
        return verify_directive(value, [secret], nonces, body_digest(body), time.time())

    front = serve(ApiSettings(verify_directive=verify))
    body = json.dumps({"prompt": "Once", "max_tokens": 1}).encode()
    signed = sign_directive(secret, frozenset({"local"}), new_nonce(), body_digest(body), time.time())

    def send(content: bytes) -> Any:
        headers = {"Content-Type": "application/json", DIRECTIVE_HEADER: signed}
        return front.http.post("/v1/completions", content=content, headers=headers)

    assert send(body).status_code == 200
    directive = front.head.requests[-1].directive
    assert directive is not None
    assert directive.modes == {"local"}
    for again in (body, body.replace(b"Once", b"Else")):
        refused = send(again)
        assert (refused.status_code, refused.json()["error"]["param"]) == (403, DIRECTIVE_HEADER)
    assert len(front.head.requests) == 1


def test_a_directive_is_refused_where_none_is_expected(front: Front) -> None:
    headers = {DIRECTIVE_HEADER: "mode=local"}
    refused = front.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "directive_rejected")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("refusal", "code", "retry"),
    [
        (EngineBusy(2.5), "engine_busy", "3"),
        (EngineDead("gone"), "engine_dead", None),
        (RemoteRequired("no worker"), "remote_required", None),
    ],
    ids=["busy", "dead", "remote"],
)
def test_what_the_head_refuses_is_a_503(
    serve: Serve, refusal: Exception, code: str, retry: str | None, stream: bool
) -> None:
    front = serve(ApiSettings())
    front.head.refusal = refusal
    with pytest.raises(openai.InternalServerError) as caught:
        front.chat(stream=stream)
    assert (caught.value.status_code, caught.value.code) == (503, code)
    assert caught.value.response.headers.get("Retry-After") == retry


def test_a_request_may_not_take_longer_than_its_limit(serve: Serve) -> None:
    front = serve(ApiSettings(limits=ApiLimits(request_seconds=0.3)))
    with pytest.raises(openai.InternalServerError) as caught:
        front.complete(max_tokens=8000)
    assert (caught.value.status_code, caught.value.code) == (504, "request_timeout")
    front.head.engine.call(lambda: None)
    assert front.head.engine.decoding == 0


def test_further_routes_share_the_error_form(serve: Serve) -> None:
    def fail(request: Request) -> Response:
        raise RuntimeError("a secret of the house")

    front = serve(ApiSettings(), Route("/broken", fail))
    answer = front.http.get("/broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert answer.headers["X-Request-Id"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted((set(ChatBody.model_fields) | set(TextBody.model_fields)) - {"max_tokens", "max_completion_tokens"})
GOOD = {"messages": [{"role": "user", "content": "x"}], "prompt": "x"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(odd=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3), chat=st.booleans())
def test_no_body_is_ever_a_server_error(front: Front, odd: dict[str, Any], chat: bool) -> None:
    path, prompt = ("chat/completions", "messages") if chat else ("completions", "prompt")
    body = {prompt: GOOD[prompt], "max_tokens": 1} | odd
    answer = front.http.post(f"/v1/{path}", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 400, 404)
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_nobody_waits_for_a_long_prompt_to_be_tokenized_but_those_who_tokenize(front: Front) -> None:
    """The tokenizer serves one at a time; the event loop must not be among those who queue for it."""
    with ThreadPoolExecutor(1) as client:
        with front.head.text._lock:
            short = client.submit(front.complete, max_tokens=1)
            with pytest.raises(TimeoutError):
                short.result(0.2)
            assert front.http.get("/healthz", timeout=5).status_code == 200
        assert short.result(20).usage.completion_tokens == 1


def test_a_text_that_cannot_fit_is_not_tokenized(front: Front) -> None:
    with front.head.text._lock:
        for path, prompt in (
            ("/v1/completions", {"prompt": "x" * 500_000}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 500_000}]}),
        ):
            answer = front.http.post(path, json={"model": MODEL, **prompt}, timeout=10)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
