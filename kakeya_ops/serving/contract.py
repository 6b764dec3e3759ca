"""What the head promises to the HTTP fronts above it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kakeya_ops.engine.contract import DecodeEvent, DecodeRequest, Ticket
from kakeya_ops.engine.text import TextDoor
from kakeya_ops.wire.signing import Directive


@dataclass(frozen=True)
class GenerateRequest:
    """One completion: `tenant` keys its block hashes, `directive` is a verified operator's wish about its prefix."""

    decode: DecodeRequest
    tenant: str
    directive: Directive | None = None


@dataclass(frozen=True)
class PrefixReady:
    """The prompt's prefix is in the cache. Comes once, before the first token.

    `cached_tokens` were computed by no node for this request; `receipt_digest` names the signed receipt;
    `forgotten_tokens` are those that the inventory's window has dropped (0 without a window).
    """

    cached_tokens: int
    receipt_digest: str
    forgotten_tokens: int


HeadEvent = DecodeEvent | PrefixReady
OnHeadEvent = Callable[[HeadEvent], None]
"""Called from any thread: must return at once."""


class Head(Protocol):
    """The one model that this head serves."""

    model_id: str
    text: TextDoor
    context_tokens: int
    """The most tokens, prompt and completion together, that the model takes."""
    vocabulary_size: int

    def submit(self, request: GenerateRequest, on_event: OnHeadEvent) -> Ticket:
        """Start `request`; its events end with a `TokenEvent` that has a `finish`, or a `FailedEvent`.

        Raises `EngineBusy` when the bounded queue is full and `EngineDead` when nothing can be computed any more.
        """

    def healthy(self) -> bool:
        """True while the engine itself answers."""


__all__ = ["GenerateRequest", "Head", "HeadEvent", "OnHeadEvent", "PrefixReady"]
