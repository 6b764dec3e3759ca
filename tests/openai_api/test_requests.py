from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatParameters
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming as TextParameters
from pydantic import BaseModel

from kakeya_ops.engine.contract import Sampling
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.requests import IGNORED_PARAMETERS, ChatBody, TextBody, parse_body

USER = {"role": "user", "content": "Hello"}


def chat(**parameters: Any) -> ChatBody:
    return parse_body(ChatBody, json.dumps({"messages": [USER]} | parameters).encode())


def text(**parameters: Any) -> TextBody:
    return parse_body(TextBody, json.dumps({"prompt": "Once"} | parameters).encode())


def test_a_bare_request_is_greedy() -> None:
    assert chat().sampling() == text().sampling() == Sampling()


def test_every_sampling_parameter_reaches_the_engine() -> None:
    parameters = {
        "temperature": 1,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": -3,
        "logit_bias": {"5": -100, "6": 1.5},
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
    }
    expected = Sampling(
        temperature=1.0,
        top_p=0.9,
        top_k=5,
        min_p=0.1,
        seed=-3,
        logit_bias={5: -100.0, 6: 1.5},
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
    )
    assert text(**parameters).sampling() == expected


def test_null_is_the_same_as_absent() -> None:
    names = set(ChatBody.model_fields) - {"messages"}
    assert chat(**dict.fromkeys(names)).sampling() == Sampling()


def test_a_nucleus_of_nothing_is_the_most_likely_token() -> None:
    sampling = text(temperature=1, top_p=0).sampling()
    assert (sampling.temperature, sampling.top_p) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (chat(), None),
        (chat(logprobs=False), None),
        (chat(logprobs=True), 0),
        (chat(logprobs=True, top_logprobs=20), 20),
        (text(logprobs=0), 0),
        (text(logprobs=5), 5),
        (text(), None),
    ],
)
def test_logprobs_mean_the_same_in_both_shapes(body: ChatBody | TextBody, wanted: int | None) -> None:
    assert body.sampling().top_logprobs == wanted


@pytest.mark.parametrize(("stop", "read"), [(None, ()), ("a", ("a",)), (["a", "bc"], ("a", "bc")), ([], ())])
def test_stop_is_one_string_or_several(stop: Any, read: tuple[str, ...]) -> None:
    assert chat(stop=stop).stop == read


@pytest.mark.parametrize(("prompt", "read"), [("a", "a"), (["a"], "a"), ([1, 2], (1, 2))])
def test_a_prompt_has_three_forms(prompt: Any, read: Any) -> None:
    assert text(prompt=prompt).prompt == read


def test_tools_are_offered_unless_the_choice_is_none() -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert chat(tools=tools).offered_tools == tools
    assert chat(tools=tools, tool_choice="none").offered_tools is None
    assert chat(tools=[]).offered_tools is None


def test_the_template_hears_of_the_effort() -> None:
    body = chat(reasoning_effort="low", chat_template_kwargs={"enable_thinking": False})
    assert body.template_arguments == {"reasoning_effort": "low", "enable_thinking": False}


def test_the_newer_name_of_max_tokens_is_kept_for_the_complaint() -> None:
    assert chat(max_completion_tokens=5).token_limit == ("max_completion_tokens", 5)
    assert chat(max_tokens=5).token_limit == ("max_tokens", 5)
    assert chat().token_limit == ("max_tokens", None)


def test_harmless_parameters_are_ignored() -> None:
    assert chat(**{name: kind() for name, kind in IGNORED_PARAMETERS.items()}).sampling() == Sampling()
    assert chat(**dict.fromkeys(IGNORED_PARAMETERS)).sampling() == Sampling()


@pytest.mark.parametrize(
    "parameters",
    [{"n": 1}, {"modalities": ["text"]}, {"response_format": {"type": "text"}}, {"tool_choice": "auto"}],
    ids=lambda parameters: next(iter(parameters)),
)
def test_the_only_supported_value_may_be_said(parameters: dict[str, Any]) -> None:
    chat(**parameters)


@pytest.mark.parametrize("known", [ChatParameters, TextParameters])
def test_every_parameter_of_openais_api_was_decided_on(known: type) -> None:
    """What its client can send is supported, refused or ignored on purpose, and not merely unknown."""
    body: type[BaseModel] = ChatBody if known is ChatParameters else TextBody
    decided = set(body.model_fields) | set(IGNORED_PARAMETERS)
    assert set(known.__annotations__) - decided == set()


def test_the_first_parameter_at_fault_is_named() -> None:
    with pytest.raises(ApiError) as caught:
        chat(messages=[USER, {"role": "user", "content": [{"type": "text"}]}], zebra=1)
    assert caught.value.param == "messages[1].content[0].text"
    assert caught.value.message == "'messages[1].content[0].text' is missing"


@pytest.mark.parametrize("body", [ChatBody, TextBody])
def test_a_missing_prompt_is_named(body: type[ChatBody] | type[TextBody]) -> None:
    with pytest.raises(ApiError) as caught:
        parse_body(body, b"{}")
    assert caught.value.param == ("messages" if body is ChatBody else "prompt")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted(set(ChatBody.model_fields) | set(TextBody.model_fields))) | st.text(max_size=8)


@settings(deadline=None)
@given(body=st.dictionaries(NAMES, VALUES, max_size=4), good=st.booleans(), kind=st.sampled_from([ChatBody, TextBody]))
def test_any_object_is_a_request_or_a_fault_with_a_name(
    body: dict[str, Any], good: bool, kind: type[BaseModel]
) -> None:
    whole = ({"messages": [USER]} if kind is ChatBody else {"prompt": "x"}) | body if good else body
    parsed: BaseModel | ApiError
    try:
        parsed = parse_body(kind, json.dumps(whole).encode())
    except ApiError as error:
        parsed = error
    if isinstance(parsed, ApiError):
        assert parsed.status == 400
        assert parsed.param is not None or parsed.code == "invalid_json"
    else:
        assert isinstance(parsed, kind)


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_a_request_or_a_fault(content: bytes) -> None:
    with pytest.raises(ApiError):
        parse_body(TextBody, content)
