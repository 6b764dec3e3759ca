from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.prompts import Prepared, prepare_chat, prepare_text
from kakeya_ops.openai_api.requests import ChatBody, TextBody, parse_body
from openai_api.fronts import LocalHead

TOOL = {"type": "function", "function": {"name": "get_weather"}}
CONTEXT = 8192


@pytest.fixture
def head(engine: Engine) -> LocalHead:
    return LocalHead(engine)


@pytest.fixture(scope="module")
def toolless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHead]:
    path: Path = make_tiny_llama(tmp_path_factory.mktemp("model") / "toolless")
    engine = Engine.load(path, CacheSettings())
    yield LocalHead(engine)
    engine.close()


def chat(head: LocalHead, **parameters: Any) -> Prepared:
    body = {"messages": [{"role": "user", "content": "Hello"}]} | parameters
    return prepare_chat(parse_body(ChatBody, json.dumps(body).encode()), head, 100)


def text(head: LocalHead, **parameters: Any) -> Prepared:
    return prepare_text(parse_body(TextBody, json.dumps({"prompt": "Once"} | parameters).encode()), head, 100)


def fault(prepare: Any, head: LocalHead, **parameters: Any) -> tuple[str | None, str | None]:
    with pytest.raises(ApiError) as caught:
        prepare(head, **parameters)
    assert caught.value.status == 400
    return caught.value.param, caught.value.code


def test_a_text_prompt_is_its_tokens(head: LocalHead) -> None:
    assert text(head).tokens == text(head, prompt=list(text(head).tokens)).tokens == tuple(head.text.encode("Once"))


def test_a_chat_is_rendered_with_its_tools(head: LocalHead) -> None:
    assert "get_weather" in head.text.decode(chat(head, tools=[TOOL]).tokens)
    assert "get_weather" not in head.text.decode(chat(head, tools=[TOOL], tool_choice="none").tokens)


def test_a_model_without_tool_calls_is_offered_none(toolless: LocalHead) -> None:
    assert fault(chat, toolless, tools=[TOOL]) == ("tools", "unsupported_parameter")
    assert chat(toolless, tools=[TOOL], tool_choice="none").tokens


def test_a_completion_without_a_bound_gets_the_default_or_what_is_left(head: LocalHead) -> None:
    assert text(head).max_tokens == 100
    assert text(head, prompt=[5] * (CONTEXT - 7)).max_tokens == 7


def test_prompt_and_completion_fill_the_context_and_no_more(head: LocalHead) -> None:
    assert text(head, prompt=[5] * (CONTEXT - 7), max_tokens=7).max_tokens == 7
    too_long = "context_length_exceeded"
    assert fault(text, head, prompt=[5] * (CONTEXT - 7), max_tokens=8) == ("max_tokens", too_long)
    assert fault(chat, head, max_completion_tokens=CONTEXT) == ("max_completion_tokens", too_long)
    assert fault(text, head, prompt=[5] * CONTEXT) == ("prompt", too_long)
    assert fault(chat, head, messages=[{"role": "user", "content": "x" * CONTEXT}]) == ("messages", too_long)


def test_the_vocabulary_bounds_token_ids(head: LocalHead) -> None:
    size = head.vocabulary_size
    assert text(head, top_k=size, logit_bias={str(size - 1): 1}, prompt=[size - 1]).tokens == (size - 1,)
    assert fault(text, head, top_k=size + 1)[0] == "top_k"
    assert fault(text, head, logit_bias={str(size): 1})[0] == "logit_bias"
    assert fault(text, head, prompt=[size])[0] == "prompt"


def test_a_template_that_refuses_names_the_messages(head: LocalHead) -> None:
    arguments = {"chat_template_kwargs": {"m": 5}, "messages": [{"role": "user", "content": "Hello"}]}
    assert chat(head, **arguments).tokens  # unused by the template
    head.text.has_chat_template = False
    try:
        assert fault(chat, head) == ("messages", "invalid_value")
    finally:
        head.text.has_chat_template = True
