"""Between text and tokens: prompts in, and out again content, reasoning and tool calls as they are decoded.

Chat templates, the markers of reasoning and tool calls, and the parsers of tool calls are mlx-lm's. Detokenizing is
not: mlx-lm's streaming detokenizers drop a leading space and know nothing of stop strings, so bytes are kept here.
"""

from __future__ import annotations

import codecs
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

from jinja2 import TemplateError
from mlx_lm.generate import TextStateMachine, make_text_state_machine
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, SPMStreamingDetokenizer
from transformers import PreTrainedTokenizerBase

from kakeya_ops.engine.contract import Finish
from kakeya_ops.errors import InputError

RESERVED_TEMPLATE_ARGUMENTS = frozenset(signature(PreTrainedTokenizerBase.apply_chat_template).parameters) | {
    "messages"
}
"""Names that a request must not pass to the chat template: they steer the rendering itself."""

_REFUSALS = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What chat templates and tool call parsers raise when they meet data that they do not expect."""

Pieces = Callable[[int], bytes]
"""A token's bytes."""

Reader = Callable[[int], str]
"""The characters that the next token of one answer completes."""

# mlx-lm says that it is typed, but these carry no types.
_States: Any = TextStateMachine
_make_states: Any = make_text_state_machine


@dataclass(frozen=True)
class ToolCall:
    """A call that the model made; `arguments` is a JSON text, `id` the model's own name for the call if it gave one."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True)
class Segment:
    """Text of one kind. A tool call comes whole, with its source in `text`."""

    kind: Literal["content", "reasoning", "tool_call"]
    text: str
    tool_call: ToolCall | None = None


class TextDoor:
    """The tokenizer of one model. Safe to use from any thread."""

    def __init__(self, tokenizer: Any) -> None:
        """`tokenizer` is mlx-lm's wrapper."""
        self.has_chat_template: bool = tokenizer.has_chat_template
        self.has_tools: bool = tokenizer.has_tool_calling
        self.eos_token_ids: frozenset[int] = frozenset(tokenizer.eos_token_ids)
        self._tokenizer = tokenizer
        self.longest_token_characters: int = max(map(len, tokenizer.get_vocab()))
        self._pieces = _find_pieces(tokenizer)
        self._trims = getattr(tokenizer.detokenizer, "trim_space", False)
        self._with_tools = _make_states(tokenizer)
        self._without_tools = _make_states(_WithoutTools(tokenizer))
        # The Rust tokenizer refuses a second borrower ("Already borrowed") instead of waiting for the first.
        self._lock = threading.Lock()

    def encode(self, text: str, *, rendered: bool = False) -> list[int]:
        """The tokens of a raw prompt, with the tokenizer's own first token, or those of a `rendered` chat without.

        It takes about a second for a million characters, during which other callers wait for it: the caller bounds
        them. No text is tokenized to fewer than its characters divided by `longest_token_characters`.
        """
        with self._lock:
            return list(self._tokenizer.encode(text, add_special_tokens=not rendered))

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of a conversation up to where the assistant's next turn begins.

        `messages` have text as content and objects as arguments of tool calls. Raises `InputError` naming `messages`
        when the template refuses them.
        """
        if not self.has_chat_template:
            raise InputError("messages: this model has no chat template", hint="use /v1/completions")
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=[dict(tool) for tool in tools] if tools else None,
                    add_generation_prompt=True,
                    tokenize=False,
                    **(template_kwargs or {}),
                )
            )
        except _REFUSALS as error:
            raise InputError(f"messages: the model's chat template refuses them: {error}") from error

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of `tokens`, special tokens included; what is not UTF-8 becomes U+FFFD."""
        if self._pieces is not None:
            return b"".join(map(self._pieces, tokens)).decode("utf-8", "replace")
        with self._lock:
            return str(self._tokenizer.decode(list(tokens)))

    def token_bytes(self, token: int) -> bytes:
        """The bytes that `token` adds to a text; they need not be whole characters."""
        return self._pieces(token) if self._pieces else self.decode((token,)).encode()

    def token_text(self, token: int) -> str:
        """`token` alone as text; what is not UTF-8 becomes U+FFFD."""
        return self.decode((token,))

    def open_stream(
        self,
        stop: Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        prompt_tokens: Sequence[int] = (),
        *,
        markers: bool = True,
    ) -> TextStream:
        """A stream for one answer to `prompt_tokens`; without `markers` all of it is content, as text completions are.

        Without `tools` a tool call is content like any other text.
        """
        if not markers:
            return TextStream(self._open_reader(), stop, _Sorter(_States(), "normal", None))
        machine = self._with_tools if tools else self._without_tools
        parse = (lambda text: self._tokenizer.tool_parser(text, tools)) if tools and self.has_tools else None
        frame = (self._tokenizer.tool_call_start or "", self._tokenizer.tool_call_end or "")
        sorter = _Sorter(machine, self._initial_state(prompt_tokens), parse, frame)
        return TextStream(self._open_reader(trim_space=self._trims), stop, sorter)

    def _open_reader(self, *, trim_space: bool = False) -> Reader:
        if self._pieces is not None:
            return _ByteReader(self._pieces, trim_space=trim_space)
        detokenizer = self._tokenizer.detokenizer

        def read(token: int) -> str:
            with self._lock:
                detokenizer.add_token(token)
                return str(detokenizer.last_segment)

        return read

    def _initial_state(self, prompt_tokens: Sequence[int]) -> str:
        """Reasoning when the prompt has opened it and not closed it again, as mlx-lm's server decides it."""
        if self._tokenizer.response_initial_state:
            return str(self._tokenizer.response_initial_state)
        if not self._tokenizer.has_thinking or not prompt_tokens:
            return "normal"
        opened = self._tokenizer.rfind_think_start(prompt_tokens)
        return "reasoning" if opened > self._tokenizer.rfind_think_end(prompt_tokens) else "normal"


class TextStream:
    """One answer as it is decoded. One thread at a time.

    `stopped` tells that a stop string is complete; it and what follows it are never given out, and neither is a part
    of it until it is known not to be one. `decoded_characters` counts all text so far, `settled_characters` what of it
    is known to come before any stop string.
    """

    def __init__(self, reader: Reader, stop: Sequence[str], sorter: _Sorter) -> None:
        self.stopped = False
        self.decoded_characters = 0
        self._reader = reader
        self._stop = _StopStrings(stop)
        self._sorter = sorter

    @property
    def settled_characters(self) -> int:
        """Characters that are known to come before any stop string."""
        return self._stop.settled_characters

    def feed(self, token: int, finish: Finish | None = None) -> list[Segment]:
        """Take the next token; with a `finish`, the last.

        A token that ends with ``stop`` is the model's end mark and has no text. A character or a tool call that is
        cut off by ``length`` is dropped.
        """
        if self.stopped:
            return []
        text = "" if finish == "stop" else self._reader(token)
        self.decoded_characters += len(text)
        text, self.stopped = self._stop.feed(text)
        if finish and not self.stopped:
            text += self._stop.flush()
        segments = self._sorter.feed(text)
        if finish or self.stopped:
            segments += self._sorter.end(cut=finish == "length" and not self.stopped)
        return segments


class _ByteReader:
    """Gives out characters as soon as their bytes are complete."""

    def __init__(self, pieces: Pieces, *, trim_space: bool) -> None:
        self._pieces = pieces
        self._trim_space = trim_space
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def __call__(self, token: int) -> str:
        text = self._characters.decode(self._pieces(token))
        if self._trim_space and text:
            self._trim_space = False
            text = text.removeprefix(" ")
        return text


class _StopStrings:
    """Cuts a text before the first stop string that completes in it, however the text is cut into pieces."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.settled_characters = 0

    def feed(self, text: str) -> tuple[str, bool]:
        """What of the text so far is safe to give out, and whether a stop string is complete."""
        text = self._held + text
        ends = [(at + len(stop), at) for stop in self._stop if (at := text.find(stop)) >= 0]
        safe = min(ends)[1] if ends else len(text) - self._partial(text)
        self._held = "" if ends else text[safe:]
        self.settled_characters += safe
        return text[:safe], bool(ends)

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        held, self._held = self._held, ""
        self.settled_characters += len(held)
        return held

    def _partial(self, text: str) -> int:
        """The length of the longest end of `text` with which a stop string begins."""
        return max((_overlap(text, stop) for stop in self._stop), default=0)


def _overlap(text: str, stop: str) -> int:
    longest = min(len(text), len(stop) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)


class _Sorter:
    """Sorts text into kinds by the model's markers, which themselves are left out."""

    def __init__(
        self,
        machine: Any,
        state: str,
        parse: Callable[[str], Any] | None,
        frame: tuple[str, str] = ("", ""),
    ) -> None:
        self._machine = machine.make_state(state)
        self._parse = parse
        self._frame = frame
        self._call: str | None = None

    def feed(self, text: str) -> list[Segment]:
        """The segments that are known to be whole."""
        self._machine, parts = _States.split(self._machine, text)
        return [segment for state, part in parts for segment in self._sort(state, part)]

    def end(self, *, cut: bool) -> list[Segment]:
        """The rest. A tool call that is still open is dropped when the text was `cut`, else taken as it is."""
        self._machine, rest, state = _States.flush(self._machine)
        segments = self._sort(state, rest)
        call, self._call = self._call, None
        return segments if cut or call is None else segments + self._read_call(call, closed=False)

    def _sort(self, state: str, text: str) -> list[Segment]:
        if state == "tool":
            self._call = (self._call or "") + text
            return []
        call, self._call = self._call, None
        segments = [] if call is None else self._read_call(call, closed=True)
        if text and state in ("normal", "reasoning"):
            segments.append(Segment("content" if state == "normal" else "reasoning", text))
        return segments

    def _read_call(self, text: str, *, closed: bool) -> list[Segment]:
        """The calls in `text`; what is no call stays visible as content instead of being lost."""
        source = self._frame[0] + text + (self._frame[1] if closed else "")
        try:
            parsed = self._parse(text) if self._parse else []
            calls = [_read_tool_call(call) for call in (parsed if isinstance(parsed, list) else [parsed])]
        except _REFUSALS:
            calls = []
        return [Segment("tool_call", source, call) for call in calls] or [Segment("content", source)]


def _read_tool_call(call: Any) -> ToolCall:
    """The parser's `call` with its arguments as strict JSON. Raises one of `_REFUSALS` if it is not a call."""
    name, arguments, own_id = call["name"], call.get("arguments", {}), call.get("id")
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise ValueError("a tool call needs a name and an object of arguments")
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    return ToolCall(name, text, own_id if isinstance(own_id, str) else None)


class _WithoutTools:
    """A tokenizer that claims to know no tool calls, so that their markers stay text."""

    has_tool_calling = False

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def _find_pieces(tokenizer: Any) -> Pieces | None:
    """How this tokenizer's tokens become bytes, by the kind that mlx-lm recognised; None if they do not one by one."""
    detokenizer = tokenizer.detokenizer
    if isinstance(detokenizer, BPEStreamingDetokenizer):
        return _ByteLevelPieces(detokenizer.tokenmap)
    if isinstance(detokenizer, SPMStreamingDetokenizer):
        return _SentencePieces(detokenizer.tokenmap)
    return None


def _byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary (GPT-2's assignment)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


class _ByteLevelPieces:
    """Tokens whose characters stand for bytes; special tokens may hold characters that stand for themselves."""

    def __init__(self, vocabulary: Sequence[str | None]) -> None:
        self._vocabulary = vocabulary
        self._bytes = _byte_alphabet()

    def __call__(self, token: int) -> bytes:
        piece = self._vocabulary[token] if 0 <= token < len(self._vocabulary) else None
        if piece is None:  # a row of the model's padded vocabulary
            return b""
        try:
            return bytes(self._bytes[character] for character in piece)
        except KeyError:
            return piece.encode()


class _SentencePieces:
    """Tokens as UTF-8, U+2581 for a space."""

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        self._vocabulary = vocabulary

    def __call__(self, token: int) -> bytes:
        piece = self._vocabulary[token] if 0 <= token < len(self._vocabulary) else b""
        return piece.replace("\N{LOWER ONE EIGHTH BLOCK}".encode(), b" ")


__all__ = ["RESERVED_TEMPLATE_ARGUMENTS", "Segment", "TextDoor", "TextStream", "ToolCall"]
