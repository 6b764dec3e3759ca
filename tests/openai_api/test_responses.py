from __future__ import annotations

import json
import math
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.text import Segment, ToolCall
from kakeya_ops.openai_api.generation import Delta, TokenLogprob
from kakeya_ops.openai_api.responses import ChatShape, Heading, TextShape, describe_model, describe_usage
from kakeya_ops.openai_api.settings import ApiSettings
from openai_api.fronts import LocalHead

USAGE = describe_usage(10, 5, 8)
HELLO = Delta([Segment("content", "Hello")], [], None)
THOUGHT = Delta([Segment("reasoning", "Hm")], [], None)
END = Delta([], [], "stop")


def calls(*ids: str | None) -> Delta:
    return Delta([Segment("tool_call", "<>", ToolCall("add", '{"a": 1}', own)) for own in ids], [], None)


@pytest.fixture
def head(engine: Engine) -> LocalHead:
    return LocalHead(engine)


@pytest.fixture
def chat(head: LocalHead) -> ChatShape:
    return ChatShape(Heading("r1", "tiny", "print", created=5), head.text)


@pytest.fixture
def text(head: LocalHead) -> TextShape:
    return TextShape(Heading("r1", "tiny", "print", created=5), head.text)


def sent(model: BaseModel | None) -> Any:
    assert model is not None
    return json.loads(model.model_dump_json(exclude_unset=True))


def test_a_whole_chat(chat: ChatShape) -> None:
    answer = sent(chat.whole([THOUGHT, HELLO, END], USAGE))
    assert ChatCompletion.model_validate(answer)
    assert answer == {
        "id": "chatcmpl-r1",
        "object": "chat.completion",
        "created": 5,
        "model": "tiny",
        "system_fingerprint": "print",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "logprobs": None,
                "message": {"role": "assistant", "content": "Hello", "refusal": None, "reasoning": "Hm"},
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }


def test_content_is_null_only_beside_a_call(chat: ChatShape) -> None:
    assert sent(chat.whole([END], USAGE))["choices"][0]["message"]["content"] == ""
    message = sent(chat.whole([calls(None), END], USAGE))["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}


def test_calls_are_numbered_across_a_stream(chat: ChatShape) -> None:
    first, second = sent(chat.chunk(calls("own", None))), sent(chat.chunk(calls(None)))
    found = [call for chunk in (first, second) for call in chunk["choices"][0]["delta"]["tool_calls"]]
    assert [call["index"] for call in found] == [0, 1, 2]
    assert found[0]["id"] == "own"
    assert len({call["id"] for call in found}) == 3


def test_chunks_of_a_chat(chat: ChatShape) -> None:
    assert sent(chat.opening())["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert sent(chat.chunk(HELLO))["choices"][0] == {"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}
    assert sent(chat.chunk(THOUGHT))["choices"][0]["delta"] == {"reasoning": "Hm"}
    assert sent(chat.chunk(END))["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert chat.chunk(Delta([], [], None)) is None
    assert "usage" not in sent(chat.chunk(HELLO))
    assert ChatCompletionChunk.model_validate(sent(chat.usage(USAGE))).usage == USAGE


def test_usage_is_null_before_the_end_if_it_is_wanted(head: LocalHead) -> None:
    heading = Heading("r1", "tiny", "print", usage_in_stream=True)
    for shape in (ChatShape(heading, head.text), TextShape(heading, head.text)):
        assert sent(shape.chunk(HELLO))["usage"] is None
        assert sent(shape.usage(USAGE))["choices"] == []


def test_a_text_completion(text: TextShape) -> None:
    answer = sent(text.whole([HELLO, HELLO, END], USAGE))
    assert Completion.model_validate(answer)
    assert answer["choices"] == [{"index": 0, "text": "HelloHello", "finish_reason": "stop", "logprobs": None}]
    assert sent(text.chunk(HELLO))["choices"][0]["finish_reason"] is None
    assert text.opening() is None


def test_a_piece_of_a_character_is_named_by_its_bytes(chat: ChatShape, text: TextShape, head: LocalHead) -> None:
    token = head.text.encode("\u00e9")[0]
    delta = Delta([], [TokenLogprob(token, -1.0, ((token, -1.0),), 0)], None)
    assert sent(text.chunk(delta))["choices"][0]["logprobs"]["tokens"] == ["bytes:\\xc3"]
    (entry,) = sent(chat.chunk(delta))["choices"][0]["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("\ufffd", [0xC3])


@pytest.mark.parametrize("logprob", [-math.inf, math.nan, -1e30])
def test_json_has_no_infinity(text: TextShape, logprob: float) -> None:
    delta = Delta([], [TokenLogprob(5, logprob, (), 0)], None)
    assert sent(text.chunk(delta))["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0]


def test_the_model_shows_its_context_and_its_window(head: LocalHead) -> None:
    plain = describe_model(head, ApiSettings(), 5)
    assert plain == {"id": "tiny", "object": "model", "created": 5, "owned_by": "kakeya", "context_length": 8192}
    shown = describe_model(head, ApiSettings(cache=CacheSettings(sink=4, window=64)), 5)
    assert shown["cache"] == {"sink_tokens": 4, "window_tokens": 64}
    assert "cache" not in describe_model(head, ApiSettings(cache=CacheSettings()), 5)
