"""From a checked body to tokens: whatever depends on the model is checked here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kakeya_ops.engine.text import TextStream
from kakeya_ops.errors import InputError
from kakeya_ops.openai_api.errors import ApiError, invalid
from kakeya_ops.openai_api.requests import ChatBody, CompletionParameters, TextBody
from kakeya_ops.serving.contract import Head


@dataclass(frozen=True)
class Prepared:
    """A prompt that the engine takes, and the stream that turns its answer into text."""

    tokens: tuple[int, ...]
    max_tokens: int
    text: TextStream


Prepare = Callable[[Any, Head, int], Prepared]
"""``(body, head, tokens of a completion whose request does not bound it)``; raises `ApiError`."""


def prepare_chat(body: ChatBody, head: Head, default_max_tokens: int) -> Prepared:
    """Render the conversation with the model's own template. Raises `ApiError` 400."""
    _check_vocabulary(body, head)
    tools = body.offered_tools
    if tools and not head.text.has_tools:
        raise invalid("tools", "'tools': this model knows no tool calls", "unsupported_parameter")
    messages = [message.for_template() for message in body.messages]
    try:
        text = head.text.render_chat(messages, tools, body.template_arguments)
    except InputError as error:
        raise invalid("messages", error.message) from error
    _check_length(text, "messages", head)
    tokens = head.text.encode(text, rendered=True)
    max_tokens = _fit(tokens, "messages", body, head.context_tokens, default_max_tokens)
    return Prepared(tuple(tokens), max_tokens, head.text.open_stream(body.stop, tools, tokens))


def prepare_text(body: TextBody, head: Head, default_max_tokens: int) -> Prepared:
    """Tokenize the prompt as it is, or take its token ids. Raises `ApiError` 400."""
    _check_vocabulary(body, head)
    tokens = _read_prompt(body.prompt, head)
    max_tokens = _fit(tokens, "prompt", body, head.context_tokens, default_max_tokens)
    return Prepared(tuple(tokens), max_tokens, head.text.open_stream(body.stop, markers=False))


def _read_prompt(prompt: str | tuple[int, ...], head: Head) -> list[int]:
    if isinstance(prompt, str):
        _check_length(prompt, "prompt", head)
        return head.text.encode(prompt)
    strange = next((token for token in prompt if not 0 <= token < head.vocabulary_size), None)
    if strange is not None:
        raise invalid("prompt", f"'prompt': token ids are 0 to {head.vocabulary_size - 1}")
    return list(prompt)


def _check_length(text: str, param: str, head: Head) -> None:
    """Refuse before it is tokenized, which takes its time, what cannot fit however it is tokenized."""
    if len(text) > head.context_tokens * head.text.longest_token_characters:
        raise _too_long(
            param, f"{len(text)} characters are more than the model's context of {head.context_tokens} holds"
        )


def _check_vocabulary(body: CompletionParameters, head: Head) -> None:
    if (body.top_k or 0) > head.vocabulary_size:
        raise invalid("top_k", f"'top_k': the vocabulary has {head.vocabulary_size} tokens")
    if any(token >= head.vocabulary_size for token in body.logit_bias or ()):
        raise invalid("logit_bias", f"'logit_bias': token ids are 0 to {head.vocabulary_size - 1}")


def _fit(tokens: list[int], param: str, body: CompletionParameters, context_tokens: int, default: int) -> int:
    """The most tokens of the completion, so that prompt and completion fit the context."""
    if not tokens:
        raise invalid(param, f"'{param}': has no tokens")
    room = context_tokens - len(tokens)
    if room < 1:
        raise _too_long(param, f"{len(tokens)} tokens leave no room in the model's context of {context_tokens}")
    limited_by, wanted = body.token_limit
    if wanted is not None and wanted > room:
        message = f"{wanted} after {len(tokens)} tokens of prompt exceed the model's context of {context_tokens}"
        raise _too_long(limited_by, message)
    return wanted or min(room, default)


def _too_long(param: str, message: str) -> ApiError:
    return invalid(param, f"'{param}': {message}", "context_length_exceeded")


__all__ = ["Prepare", "Prepared", "prepare_chat", "prepare_text"]
