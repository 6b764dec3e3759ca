"""The bodies of completion requests. Every parameter is checked here, before the engine sees any of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from kakeya_ops.engine.contract import Sampling
from kakeya_ops.engine.text import RESERVED_TEMPLATE_ARGUMENTS
from kakeya_ops.openai_api.errors import ApiError, invalid
from kakeya_ops.openai_api.messages import Message, Strict, Tool, unsupported

IGNORED_PARAMETERS: Mapping[str, type] = {
    "metadata": dict,
    "parallel_tool_calls": bool,
    "prompt_cache_key": str,
    "prompt_cache_options": dict,
    "prompt_cache_retention": str,
    "safety_identifier": str,
    "service_tier": str,
    "store": bool,
    "user": str,
    "verbosity": str,
}
"""Parameters that real clients send and that change nothing here, with their types. Any other is refused by name."""

_MOST_STOP_STRINGS = 4
_LONGEST_STOP_STRING = 1000

Body = TypeVar("Body", bound=BaseModel)


def _read_stop(value: Any) -> Any:
    strings = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(strings, list) or not all(isinstance(item, str) for item in strings):
        raise PydanticCustomError("stop", "must be a string or a list of strings")
    if len(strings) > _MOST_STOP_STRINGS:
        raise PydanticCustomError("stop", f"may hold at most {_MOST_STOP_STRINGS} strings")
    if not all(0 < len(item) <= _LONGEST_STOP_STRING for item in strings):
        raise PydanticCustomError("stop", f"strings must have 1 to {_LONGEST_STOP_STRING} characters")
    return tuple(strings)


def _read_bias(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if not all(key.isascii() and key.isdigit() and len(key) <= 10 for key in value):
        raise PydanticCustomError("logit_bias", "keys must be token ids")
    return {int(key): bias for key, bias in value.items()}


def _only(neutral: Any) -> BeforeValidator:
    """Accept `neutral` or null and refuse everything else as unsupported."""

    def check(value: Any) -> Any:
        if value is not None and (type(value) is not type(neutral) or value != neutral):
            raise unsupported(f"only {neutral!r} is supported".replace("False", "false"))
        return value

    return BeforeValidator(check)


def _absent(value: Any) -> None:
    if value is not None:
        raise unsupported("is not supported by this server")


def _text_only(value: Any) -> None:
    if value is not None and value != {"type": "text"}:
        raise unsupported("only {'type': 'text'} is supported: a format that is not enforced would be a false promise")


def _read_tool_choice(value: Any) -> Any:
    if value == "required" or isinstance(value, dict):
        raise unsupported("only 'none' and 'auto' are supported: the model cannot be forced to call")
    return value


def _template_arguments(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if not name.isidentifier() or name in RESERVED_TEMPLATE_ARGUMENTS:
            raise PydanticCustomError("chat_template_kwargs", "may not hold {name}", {"name": repr(name[:40])})
    return value


Bias = Annotated[float, Field(ge=-100, le=100)]
Absent = Annotated[None, BeforeValidator(_absent)]


class StreamOptions(Strict):
    """What a stream tells besides the text."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class CompletionParameters(Strict):
    """What both kinds of completion share. `temperature` is 0 unless given, as it is in mlx-lm's server.

    Beyond OpenAI's: `top_k`, `min_p` and `repetition_penalty`, with mlx-lm's meaning.
    """

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: Annotated[tuple[str, ...], BeforeValidator(_read_stop)] = ()
    logit_bias: Annotated[dict[int, Bias] | None, BeforeValidator(_read_bias)] = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0, le=10)
    n: Annotated[int | None, _only(1)] = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> CompletionParameters:
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError("stream_options", "needs 'stream' to be true")
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def token_limit(self) -> tuple[str, int | None]:
        """The parameter that bounds the completion, and its value."""
        return "max_tokens", self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """How many alternatives to each token are wanted; None for no log-probabilities at all."""
        return None

    def sampling(self) -> Sampling:
        """The same in the engine's terms. `top_p` of 0 keeps only the most likely token."""
        greedy = self.top_p == 0
        return Sampling(
            temperature=0.0 if greedy else self.temperature or 0.0,
            top_p=self.top_p or 1.0,
            top_k=self.top_k or 0,
            min_p=self.min_p or 0.0,
            seed=self.seed,
            logit_bias=self.logit_bias or {},
            repetition_penalty=self.repetition_penalty or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            top_logprobs=self.wanted_logprobs,
        )


class ChatBody(CompletionParameters):
    """The body of ``POST /v1/chat/completions``. `chat_template_kwargs` goes to the model's template."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = Field(None, max_length=128)
    tool_choice: Annotated[Literal["none", "auto"] | None, BeforeValidator(_read_tool_choice)] = None
    response_format: Annotated[None, BeforeValidator(_text_only)] = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(_template_arguments)] | None = None
    modalities: Annotated[list[str] | None, _only(["text"])] = None
    audio: Absent = None
    moderation: Absent = None
    prediction: Absent = None
    web_search_options: Absent = None
    functions: Absent = None
    function_call: Absent = None

    @model_validator(mode="after")
    def _consistent(self) -> ChatBody:
        if self.top_logprobs is not None and not self.logprobs:
            raise PydanticCustomError("top_logprobs", "needs 'logprobs' to be true")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise PydanticCustomError("max_tokens", "cannot be given together with 'max_completion_tokens'")
        return self

    @property
    def token_limit(self) -> tuple[str, int | None]:
        """The parameter that bounds the completion, and its value."""
        if self.max_completion_tokens is not None:
            return "max_completion_tokens", self.max_completion_tokens
        return "max_tokens", self.max_tokens

    @property
    def wanted_logprobs(self) -> int | None:
        """How many alternatives to each token are wanted; None for no log-probabilities at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def offered_tools(self) -> list[dict[str, Any]] | None:
        """The tools that the model is told of."""
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_unset=True) for tool in self.tools]

    @property
    def template_arguments(self) -> dict[str, Any]:
        """What the chat template is given besides messages and tools."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return effort | (self.chat_template_kwargs or {})


def _read_prompt(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        value = value[0]
    if isinstance(value, list) and all(type(token) is int for token in value):
        value = tuple(value)
    if not isinstance(value, str | tuple):
        raise PydanticCustomError("prompt", "must be a string, a list of token ids, or a list of exactly one string")
    if not value:
        raise PydanticCustomError("prompt", "must not be empty")
    return value


class TextBody(CompletionParameters):
    """The body of ``POST /v1/completions``."""

    prompt: Annotated[str | tuple[int, ...], BeforeValidator(_read_prompt)]
    logprobs: int | None = Field(None, ge=0, le=5)
    best_of: Annotated[int | None, _only(1)] = None
    echo: Annotated[bool | None, _only(False)] = None
    suffix: Absent = None

    @property
    def wanted_logprobs(self) -> int | None:
        """How many alternatives to each token are wanted; None for no log-probabilities at all."""
        return self.logprobs


def parse_body(kind: type[Body], content: bytes) -> Body:
    """The JSON text `content` as `kind`. Raises `ApiError` 400 that names the first parameter at fault."""
    try:
        data = from_json(content)
    except ValueError as error:
        raise invalid(None, f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(data, dict):
        raise invalid(None, "the body must be a JSON object", "invalid_json")
    _check_ignored(data)
    try:
        return kind.model_validate({key: value for key, value in data.items() if key not in IGNORED_PARAMETERS})
    except ValidationError as error:
        raise _describe(error.errors(include_url=False, include_input=False), data, tuple(kind.model_fields)) from None


def _check_ignored(data: Mapping[str, Any]) -> None:
    words = {bool: "true or false", dict: "an object", str: "a string"}
    for name, kind in IGNORED_PARAMETERS.items():
        if data.get(name) is not None and not isinstance(data[name], kind):
            raise invalid(name, f"{name!r}: must be {words[kind]}")


def _describe(faults: list[ErrorDetails], data: Mapping[str, Any], order: tuple[str, ...]) -> ApiError:
    """The fault of the first parameter; of the branches of a union, that which came furthest."""
    located = [(_locate(fault, data), fault) for fault in faults]
    first = located[0][0][:1]
    path, fault = max((entry for entry in located if entry[0][:1] == first), key=lambda entry: len(entry[0]))
    if fault["type"] == "extra_forbidden" and len(path) == 1:
        return invalid(str(path[0])[:80], f"unknown parameter {str(path[0])[:80]!r}", "unknown_parameter")
    param = _render_path(path)
    missing = fault["type"] == "missing" and fault["msg"] == "Field required"
    message = f"'{param}' is missing" if missing else f"'{param}': {fault['msg'][:1].lower()}{fault['msg'][1:]}"
    return invalid(param, message, "unsupported_parameter" if fault["type"] == "unsupported" else "invalid_value")


def _locate(fault: ErrorDetails, data: Mapping[str, Any]) -> tuple[str | int, ...]:
    """The path into `data`: pydantic's own, without the names of union branches."""
    value: Any = data
    path: list[str | int] = []
    last = len(fault["loc"]) - 1
    for depth, step in enumerate(fault["loc"]):
        inside = isinstance(value, list) if isinstance(step, int) else isinstance(value, dict)
        if inside and (isinstance(step, int) or step in value or depth == last):
            path.append(step)
            value = value[step] if isinstance(step, int) else value.get(step)
    # Rules between parameters are named after the one that is at fault.
    return tuple(path) or (fault["type"],)


def _render_path(path: tuple[str | int, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step[:80]}" for step in path)
    return "".join(steps).removeprefix(".")


__all__ = [
    "IGNORED_PARAMETERS",
    "ChatBody",
    "CompletionParameters",
    "StreamOptions",
    "TextBody",
    "parse_body",
]
