"""What is ordered of a peer that has blocks, how they come, and why they may not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kakeya_ops.errors import PeerError, PeerRefused
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import Fallback
from kakeya_ops.wire.statuses import STATUSES

OnPart = Callable[[int, int, StoredPart], None]
"""``(block, part, payload)`` of a verified arrival; called on the thread that reads the stream."""

_CODES = frozenset(code for _, code in STATUSES.values())


class BlocksGone(PeerError):
    """A peer no longer holds what it held when it was asked: evicted, or forgotten with its process."""

    reason = "gone"

    def __init__(self, peer: str) -> None:
        super().__init__(peer, "no longer holds all the blocks that it held a moment before")


@dataclass(frozen=True)
class Errand:
    """For whom a peer is asked: `stop` means that nobody waits any more, `nonce` is to come back in its receipt.

    `on_progress` is told how far into the prompt blocks have come, whenever that grows, `on_block` is called for each
    block that comes, and `on_queue` is told how many seconds the peer says that its queue will take. `overrun` tells
    whether `stop` means that the peer took too long instead.
    """

    nonce: str
    stop: StopFlag
    on_progress: Callable[[int], None] = lambda blocks: None
    on_queue: Callable[[float], None] = lambda seconds: None
    overrun: Callable[[], bool] = lambda: False
    on_block: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Order:
    """What is wanted of a peer: blocks ``[from_blocks, blocks)`` of `prompt`, as long as `errand` lasts.

    `wanted` are the ``(block, part)`` of them that this peer is to fetch; None means all that are needed. What is to be
    computed in the `background` may be given up for anything else.
    """

    prompt: Prompt
    from_blocks: int
    blocks: int
    errand: Errand
    wanted: tuple[tuple[int, int], ...] | None = None
    background: bool = False

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """What is to be fetched, as ``(block, part)`` in order."""
        if self.wanted is not None:
            return self.wanted
        return tuple(place for place in self.prompt.layout.needed(self.blocks) if place[0] >= self.from_blocks)


@dataclass(frozen=True)
class Delivery:
    """How a peer's stream ended well: which of its processes sent it, and its signed receipt, None for a mere fetch."""

    epoch: int
    instance: str
    receipt: Mapping[str, Any] | None


class Source(Protocol):
    """A peer that can deliver blocks."""

    @property
    def node(self) -> str:
        """Its node id."""

    @property
    def link(self) -> dict[str, Any]:
        """The way to it, for receipts."""

    def fetch(self, order: Order, on_part: OnPart) -> Delivery:
        """Stream what the peer holds. Raises `PeerError`."""

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        """Have the peer compute the same and stream it meanwhile. Raises `PeerError`."""


def explain_fallback(error: PeerError, kept_blocks: int = 0) -> Fallback:
    """Why the head computes locally after all. The reason is the peer's own word for it where the protocol knows it."""
    reason = error.code if isinstance(error, PeerRefused) and error.code in _CODES else error.reason
    return Fallback(error.peer, reason, error.message, kept_blocks)


__all__ = ["BlocksGone", "Delivery", "Errand", "OnPart", "Order", "Source", "explain_fallback"]
