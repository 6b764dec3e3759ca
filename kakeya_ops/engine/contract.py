"""What the engine promises to the layers above it, as plain values: no MLX here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from kakeya_ops.kv.pool import StoredPart

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class CacheSettings:
    """The cache section of the inventory that changes KV: block (= prefill grid) in tokens, sink and window in rows."""

    block_tokens: int = 64
    sink: int = 4
    window: int | None = None


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; the defaults are greedy and unbiased.

    `seed` makes the choice reproducible whatever else is decoded beside it. `top_logprobs` of None means that no
    log-probabilities are wanted.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int | None = None


@dataclass(frozen=True)
class DecodeRequest:
    """A whole prompt (at least one token) and what is to be decoded after it."""

    request_id: str
    tokens: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()


@dataclass(frozen=True)
class TokenEvent:
    """One decoded token. `top` are the most likely tokens with their log-probabilities, best first."""

    token: int
    finish: Finish | None = None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class PrefillEvent:
    """Prompt progress of a decode request: `done` of `total` tokens are in the cache.

    `node` is the peer that the last of them came from, None where they were computed here.
    """

    done: int
    total: int
    node: str | None = None


@dataclass(frozen=True)
class FailedEvent:
    """The request ended without an answer; nothing follows."""

    error: Exception


DecodeEvent = TokenEvent | PrefillEvent | FailedEvent
OnEvent = Callable[[DecodeEvent], None]
"""Called on the compute thread: must return at once."""

BlockSink = Callable[[int, tuple[StoredPart | None, ...]], None]
"""``(block, payload per part)`` of a finished grid chunk; None for a state that was not kept at that block.
Called on the compute thread: must return at once."""


class Ticket(Protocol):
    """A running request or job."""

    def cancel(self) -> None:
        """Stop it at the next step or chunk; calling it again, or after the end, does nothing."""


@dataclass(frozen=True)
class Heartbeat:
    """`age_seconds` since the compute thread last finished a step, a chunk or an idle self-test."""

    alive: bool
    age_seconds: float
    busy: bool


@dataclass(frozen=True)
class MemoryUse:
    """The bytes of MLX's buffers: those in use now, and the most that were in use at once. Spare ones do not count."""

    active_bytes: int
    peak_bytes: int


__all__ = [
    "BlockSink",
    "CacheSettings",
    "DecodeEvent",
    "DecodeRequest",
    "FailedEvent",
    "Finish",
    "Heartbeat",
    "MemoryUse",
    "OnEvent",
    "PrefillEvent",
    "Sampling",
    "Ticket",
    "TokenEvent",
]
