from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kakeya_ops.openai_api.messages import Message, Tool

CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def rendered(**fields: Any) -> dict[str, Any]:
    return Message.model_validate(fields).for_template()


def test_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "Hello, "}, {"type": "text", "text": "world"}]
    assert rendered(role="user", content=parts) == {"role": "user", "content": "Hello, world"}


def test_developer_is_system_to_a_template() -> None:
    assert rendered(role="developer", content="Be brief")["role"] == "system"


def test_arguments_of_a_call_become_an_object() -> None:
    message = rendered(role="assistant", content=None, tool_calls=[CALL | {"index": 0}])
    assert message["content"] == ""
    assert message["tool_calls"] == [CALL | {"function": {"name": "add", "arguments": {"a": 1}}}]


def test_no_arguments_are_an_empty_object() -> None:
    call = CALL | {"function": {"name": "now", "arguments": ""}}
    assert rendered(role="assistant", tool_calls=[call])["tool_calls"][0]["function"]["arguments"] == {}


def test_reasoning_goes_to_the_template_under_both_names() -> None:
    message = rendered(role="assistant", content="4", reasoning="2 + 2")
    assert (message["reasoning"], message["reasoning_content"]) == ("2 + 2", "2 + 2")


def test_what_an_answer_carries_besides_is_accepted_and_left_out() -> None:
    answer = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    assert rendered(role="assistant", content="Hi", **answer) == {"role": "assistant", "content": "Hi"}


def test_a_tool_message_keeps_what_it_answers() -> None:
    message = rendered(role="tool", content="3", tool_call_id="call_1", name="add")
    assert message == {"role": "tool", "content": "3", "tool_call_id": "call_1", "name": "add"}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"role": "user"}, "content"),
        ({"role": "assistant"}, "content"),
        ({"role": "assistant", "tool_calls": []}, "content"),
        ({"role": "user", "content": "x", "tool_calls": [CALL]}, "tool_calls"),
        ({"role": "tool", "content": "3"}, "tool_call_id"),
        ({"role": "function", "content": "3"}, "role"),
        ({"role": "user", "content": "x", "mood": "good"}, "mood"),
    ],
)
def test_a_message_that_does_not_hang_together_is_refused(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Message.model_validate(fields)
    assert [fault["loc"][0] for fault in caught.value.errors()] == [place]


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "a\n"])
def test_a_function_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValidationError):
        Tool.model_validate({"type": "function", "function": {"name": name}})


def test_a_tool_is_passed_on_as_it_came() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "odd": [1, None]}}}
    assert Tool.model_validate(tool).model_dump(exclude_unset=True) == tool
