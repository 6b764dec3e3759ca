"""Answers in OpenAI's two shapes, made of the `openai` package's own types."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from openai.types import Completion, CompletionChoice, CompletionUsage, Model
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionTokenLogprob,
)
from openai.types.chat.chat_completion import Choice, ChoiceLogprobs
from openai.types.chat.chat_completion_chunk import Choice as ChunkChoice
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall, ChoiceDeltaToolCallFunction
from openai.types.chat.chat_completion_chunk import ChoiceLogprobs as ChunkLogprobs
from openai.types.chat.chat_completion_message_function_tool_call import Function
from openai.types.chat.chat_completion_token_logprob import TopLogprob
from openai.types.completion_choice import Logprobs
from openai.types.completion_usage import PromptTokensDetails
from pydantic import BaseModel

from kakeya_ops.engine.text import Segment, TextDoor
from kakeya_ops.openai_api.generation import Delta, TokenLogprob
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.contract import Head

_LOWEST_LOGPROB = -9999.0
"""What OpenAI says of a token that is next to impossible; JSON has no infinity."""


@dataclass(frozen=True)
class Heading:
    """What every part of one answer carries."""

    request_id: str
    model: str
    fingerprint: str
    usage_in_stream: bool = False
    created: int = field(default_factory=lambda: int(time.time()))


class Shape(Protocol):
    """One of the two shapes of an answer, whole or in pieces."""

    def opening(self) -> BaseModel | None:
        """What a stream begins with, before any text."""

    def chunk(self, delta: Delta) -> BaseModel | None:
        """`delta` as a piece of a stream; None if it shows nothing."""

    def usage(self, usage: CompletionUsage) -> BaseModel:
        """The last piece of a stream whose client wants the counts."""

    def whole(self, deltas: Sequence[Delta], usage: CompletionUsage) -> BaseModel:
        """The answer at once."""


class ChatShape:
    """``chat.completion`` and its chunks. Reasoning is in `reasoning`, as mlx-lm and vLLM name it."""

    def __init__(self, heading: Heading, text: TextDoor) -> None:
        self._heading = heading
        self._text = text
        self._calls = 0

    def opening(self) -> ChatCompletionChunk:
        """See `Shape`."""
        return self._chunk([ChunkChoice(index=0, delta=ChoiceDelta(role="assistant", content=""), finish_reason=None)])

    def chunk(self, delta: Delta) -> ChatCompletionChunk | None:
        """See `Shape`."""
        if not (delta.segments or delta.logprobs or delta.finish):
            return None
        choice = ChunkChoice(index=0, delta=self._delta(delta.segments), finish_reason=delta.finish)
        if delta.logprobs:
            choice.logprobs = ChunkLogprobs(content=_chat_logprobs(delta.logprobs, self._text), refusal=None)
        return self._chunk([choice])

    def usage(self, usage: CompletionUsage) -> ChatCompletionChunk:
        """See `Shape`."""
        chunk = self._chunk([])
        chunk.usage = usage
        return chunk

    def whole(self, deltas: Sequence[Delta], usage: CompletionUsage) -> ChatCompletion:
        """See `Shape`."""
        logprobs = [entry for delta in deltas for entry in delta.logprobs]
        choice = Choice(
            index=0,
            finish_reason=deltas[-1].finish or "stop",
            message=_message([segment for delta in deltas for segment in delta.segments]),
            logprobs=ChoiceLogprobs(content=_chat_logprobs(logprobs, self._text), refusal=None) if logprobs else None,
        )
        heading = self._heading
        return ChatCompletion(
            id=f"chatcmpl-{heading.request_id}",
            object="chat.completion",
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.fingerprint,
            choices=[choice],
            usage=usage,
        )

    def _chunk(self, choices: list[ChunkChoice]) -> ChatCompletionChunk:
        heading = self._heading
        chunk = ChatCompletionChunk(
            id=f"chatcmpl-{heading.request_id}",
            object="chat.completion.chunk",
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.fingerprint,
            choices=choices,
        )
        if heading.usage_in_stream:
            chunk.usage = None
        return chunk

    def _delta(self, segments: Sequence[Segment]) -> ChoiceDelta:
        delta = ChoiceDelta()
        if content := _join(segments, "content"):
            delta.content = content
        if reasoning := _join(segments, "reasoning"):
            delta.reasoning = reasoning  # type: ignore[attr-defined] # OpenAI's types admit further fields
        if calls := [segment.tool_call for segment in segments if segment.tool_call]:
            delta.tool_calls = [
                ChoiceDeltaToolCall(
                    index=index,
                    id=call.id or _new_call_id(),
                    type="function",
                    function=ChoiceDeltaToolCallFunction(name=call.name, arguments=call.arguments),
                )
                for index, call in enumerate(calls, self._calls)
            ]
            self._calls += len(calls)
        return delta


class TextShape:
    """``text_completion``, whole or in pieces."""

    def __init__(self, heading: Heading, text: TextDoor) -> None:
        self._heading = heading
        self._text = text

    def opening(self) -> None:
        """See `Shape`."""

    def chunk(self, delta: Delta) -> Completion | None:
        """See `Shape`."""
        return self._completion([delta]) if delta.segments or delta.logprobs or delta.finish else None

    def usage(self, usage: CompletionUsage) -> Completion:
        """See `Shape`."""
        return self._completion([], usage)

    def whole(self, deltas: Sequence[Delta], usage: CompletionUsage) -> Completion:
        """See `Shape`."""
        return self._completion(deltas, usage)

    def _completion(self, deltas: Sequence[Delta], usage: CompletionUsage | None = None) -> Completion:
        heading = self._heading
        completion = Completion(
            id=f"cmpl-{heading.request_id}",
            object="text_completion",
            created=heading.created,
            model=heading.model,
            system_fingerprint=heading.fingerprint,
            choices=[self._choice(deltas)] if deltas else [],
        )
        if usage or heading.usage_in_stream:
            completion.usage = usage
        return completion

    def _choice(self, deltas: Sequence[Delta]) -> CompletionChoice:
        logprobs = [entry for delta in deltas for entry in delta.logprobs]
        choice = CompletionChoice(
            index=0,
            text=_join([segment for delta in deltas for segment in delta.segments], "content"),
            finish_reason="stop",
            logprobs=_text_logprobs(logprobs, self._text) if logprobs else None,
        )
        # The type knows only the end of an answer; the pieces of a stream before it say null.
        choice.finish_reason = deltas[-1].finish  # type: ignore[assignment]
        return choice


def describe_usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> CompletionUsage:
    """The counts of one answer; `cached_tokens` of the prompt were not computed for it."""
    return CompletionUsage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached_tokens),
    )


def describe_model(head: Head, settings: ApiSettings, created: int) -> dict[str, Any]:
    """The one model, with its context and with what its window keeps."""
    model = Model(id=head.model_id, object="model", created=created, owned_by="kakeya").model_dump(exclude_unset=True)
    model["context_length"] = head.context_tokens
    if settings.cache is not None and settings.cache.window is not None:
        model["cache"] = {"sink_tokens": settings.cache.sink, "window_tokens": settings.cache.window}
    return model


def _message(segments: Sequence[Segment]) -> ChatCompletionMessage:
    content = _join(segments, "content")
    calls = [segment.tool_call for segment in segments if segment.tool_call]
    message = ChatCompletionMessage(role="assistant", content=content if content or not calls else None, refusal=None)
    if reasoning := _join(segments, "reasoning"):
        message.reasoning = reasoning  # type: ignore[attr-defined] # OpenAI's types admit further fields
    if calls:
        message.tool_calls = [
            ChatCompletionMessageFunctionToolCall(
                id=call.id or _new_call_id(),
                type="function",
                function=Function(name=call.name, arguments=call.arguments),
            )
            for call in calls
        ]
    return message


def _join(segments: Sequence[Segment], kind: str) -> str:
    return "".join(segment.text for segment in segments if segment.kind == kind)


def _chat_logprobs(entries: Sequence[TokenLogprob], text: TextDoor) -> list[ChatCompletionTokenLogprob]:
    return [
        ChatCompletionTokenLogprob(
            token=text.token_text(entry.token),
            bytes=list(text.token_bytes(entry.token)),
            logprob=_finite(entry.logprob),
            top_logprobs=[
                TopLogprob(token=text.token_text(token), bytes=list(text.token_bytes(token)), logprob=_finite(logprob))
                for token, logprob in entry.top
            ],
        )
        for entry in entries
    ]


def _text_logprobs(entries: Sequence[TokenLogprob], text: TextDoor) -> Logprobs:
    return Logprobs(
        tokens=[_text_token(entry.token, text) for entry in entries],
        token_logprobs=[_finite(entry.logprob) for entry in entries],
        top_logprobs=[{_text_token(token, text): _finite(value) for token, value in entry.top} for entry in entries],
        text_offset=[entry.offset for entry in entries],
    )


def _text_token(token: int, text: TextDoor) -> str:
    """The token's text; of a piece of a character its bytes, since two of them must not have one name."""
    piece = text.token_bytes(token)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _finite(logprob: float) -> float:
    return _LOWEST_LOGPROB if math.isnan(logprob) else max(logprob, _LOWEST_LOGPROB)


def _new_call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


__all__ = ["ChatShape", "Heading", "Shape", "TextShape", "describe_model", "describe_usage"]
