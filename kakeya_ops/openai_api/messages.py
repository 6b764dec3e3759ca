"""The conversation and the tools of a chat request, strictly checked and brought into the form of chat templates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, from_json


class Strict(BaseModel):
    """Nothing is converted, nothing is let pass that is not known, no NaN or infinity."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


def unsupported(message: str) -> PydanticCustomError:
    """The fault of a value that OpenAI's API has and this server does not."""
    return PydanticCustomError("unsupported", "{reason}", {"reason": message})


def _only_text(kind: Any) -> Any:
    if isinstance(kind, str) and kind != "text":
        raise unsupported(f"parts of type {kind[:40]!r} are not supported; no image, audio or file is read or fetched")
    return kind


def _read_arguments(text: Any) -> Any:
    """The object in a tool call's `text`; templates write it out themselves."""
    try:
        arguments = from_json(text or "{}", allow_inf_nan=False) if isinstance(text, str) else None
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise PydanticCustomError("arguments", "must be a JSON object, as a string")
    return arguments


class TextPart(Strict):
    """A piece of a message's content."""

    type: Annotated[Literal["text"], BeforeValidator(_only_text)]
    text: str


class MadeFunction(Strict):
    """What an earlier tool call called."""

    name: str = Field(min_length=1)
    arguments: Annotated[dict[str, Any], BeforeValidator(_read_arguments)]


class MadeCall(Strict):
    """A tool call of an earlier turn."""

    id: str
    type: Literal["function"] = "function"
    function: MadeFunction
    index: int | None = None


class Message(Strict):
    """One message. What clients send back from an answer (`refusal`, `annotations`, …) is accepted and left out."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    tool_calls: list[MadeCall] | None = None
    content: str | list[TextPart] | None = Field(None, validate_default=True)
    name: str | None = None
    tool_call_id: str | None = Field(None, validate_default=True)
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None

    @field_validator("tool_calls")
    @classmethod
    def _assistant_only(cls, value: Any, info: ValidationInfo) -> Any:
        if value and info.data.get("role") != "assistant":
            raise PydanticCustomError("role", "only a message of the assistant has tool calls")
        return value

    @field_validator("content")
    @classmethod
    def _content_present(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and "role" in info.data and not (info.data["role"] == "assistant" and _called(info)):
            raise PydanticCustomError("missing", "must be text or a list of text parts")
        return value

    @field_validator("tool_call_id")
    @classmethod
    def _answers_a_call(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and info.data.get("role") == "tool":
            raise PydanticCustomError("missing", "must name the tool call that the message answers")
        return value

    def for_template(self) -> dict[str, Any]:
        """The message as chat templates know it: text as content, `developer` as `system`."""
        content = self.content
        message: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": "".join(part.text for part in content) if isinstance(content, list) else content or "",
        }
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump(exclude={"index"}) for call in self.tool_calls]
        if reasoning := self.reasoning_content or self.reasoning:
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        return message | {key: value for key in ("name", "tool_call_id") if (value := getattr(self, key)) is not None}


def _called(info: ValidationInfo) -> bool:
    # A faulty `tool_calls` is absent here and reported by itself.
    return "tool_calls" not in info.data or bool(info.data["tool_calls"])


class Function(Strict):
    """A function that the model may call; `parameters` is a JSON Schema and goes to the template as it is."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    """A tool of a request."""

    type: Literal["function"]
    function: Function


__all__ = ["Message", "Strict", "TextPart", "Tool", "unsupported"]
