"""Bring a prompt's prefix together: from the head's own pool, and from one peer while it still computes.

Whatever goes wrong with the peer ends in a local prefill that starts after the blocks which did arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import PeerError, PeerRefused, StreamCorrupt
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import Fallback, RemotePart
from kakeya_ops.serving.scheduler import Decision
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

    `on_progress` is told how many blocks of the prompt there are, whenever that grows.
    """

    nonce: str
    stop: StopFlag
    on_progress: Callable[[int], None] = lambda blocks: None


@dataclass(frozen=True)
class Order:
    """What is wanted of a peer: blocks ``[from_blocks, blocks)`` of `prompt`, as long as `errand` lasts."""

    prompt: Prompt
    from_blocks: int
    blocks: int
    errand: Errand


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


@dataclass
class Gathered:
    """A prefix that is ready to be resumed after, and how it came to be. `seconds` by what they were spent on.

    `received_bytes` came from a peer, also when its stream broke.
    """

    assembly: Assembly | None
    local_blocks: int
    remote: RemotePart | None = None
    fallback: Fallback | None = None
    received_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """How many blocks need not be computed here."""
        return self.assembly.blocks if self.assembly else 0


class Gathering:
    """One request's prefix. Used by one thread."""

    def __init__(self, engine: Engine, pool: BlockPool, prompt: Prompt, *, use_pool: bool) -> None:
        self._engine = engine
        self._pool = pool
        self._prompt = prompt
        self._use_pool = use_pool
        self._own_blocks = 0
        self._received: dict[tuple[int, int], StoredPart] = {}
        self._import_seconds = 0.0

    @property
    def local_blocks(self) -> int:
        """How many blocks the head's own pool lets this prompt resume after."""
        if not self._use_pool:
            return 0
        return longest_resume(self._prompt.layout, self._prompt.hashes, self._pool.holds, self._prompt.blocks)

    def from_pool(self) -> Gathered:
        """What the head's own pool holds, and nothing else."""
        blocks, assembly = self._assemble()
        return Gathered(assembly, blocks, seconds={"import": self._import_seconds})

    def from_peer(self, decision: Decision, source: Source, errand: Errand) -> Gathered:
        """The prefix up to `decision.blocks`: from the own pool as far as it goes, then from `source`.

        A fault of the peer is part of the result, not an error. Raises `Cancelled` when nobody waits any more.
        """
        began = time.monotonic()
        try:
            return self._stream(decision, source, errand)
        except CallAborted:
            raise Cancelled from None
        except PeerError as error:
            return self._salvage(error, time.monotonic() - began)

    def _stream(self, decision: Decision, source: Source, errand: Errand) -> Gathered:
        with self._pin() as own:
            held = self._own_blocks = self._resume_after(own)
            assembly = self._engine.open_import(decision.blocks)
            self._place(assembly, own, [pair for pair in self._needed(decision.blocks) if pair[0] < held])
            began = time.monotonic()
            run = source.fetch if decision.kind == "import" else source.compute
            delivery = run(Order(self._prompt, held, decision.blocks, errand), self._arrivals(assembly, errand))
            transfer_seconds = time.monotonic() - began
        self._judge(source, assembly, delivery)
        remote = self._describe(decision, source, delivery, held, transfer_seconds)
        seconds = {"transfer": transfer_seconds, "import": self._import_seconds}
        return Gathered(assembly, held, remote, received_bytes=self._received_bytes, seconds=seconds)

    def _arrivals(self, assembly: Assembly, errand: Errand) -> OnPart:
        most = self._own_blocks

        def arrive(block: int, part: int, stored: StoredPart) -> None:
            nonlocal most
            self._received[block, part] = stored
            self._pool.put(self._prompt.key(block, part), stored)
            began = time.monotonic()
            assembly.place(block, part, stored.data)
            self._import_seconds += time.monotonic() - began
            if block >= most:
                most = block + 1
                errand.on_progress(most)

        return arrive

    def _judge(self, source: Source, assembly: Assembly, delivery: Delivery) -> None:
        if not assembly.complete and delivery.receipt is None:
            raise BlocksGone(source.node)
        if not assembly.complete:
            raise StreamCorrupt(source.node, "the stream ended well but lacks blocks")
        if delivery.receipt is not None and delivery.receipt["blocks_digest"] != self._digest():
            raise StreamCorrupt(source.node, "the receipt names other blocks than those that arrived")

    def _salvage(self, error: PeerError, wasted_seconds: float) -> Gathered:
        """Resume after whatever the own pool and the broken stream hold together."""
        blocks, assembly = self._assemble()
        own_blocks = min(self._own_blocks, blocks)
        fallback = explain_fallback(error, blocks - own_blocks)
        seconds = {"wasted": wasted_seconds, "import": self._import_seconds}
        return Gathered(assembly, own_blocks, None, fallback, self._received_bytes, seconds)

    def _assemble(self) -> tuple[int, Assembly | None]:
        """The longest prefix that the pool (where allowed) and the arrivals hold together, put together."""
        with self._pin() as own:
            arrived = {self._prompt.key(block, part): stored for (block, part), stored in self._received.items()}
            parts = own | arrived
            blocks = self._resume_after(parts)
            if blocks == 0:
                return 0, None
            assembly = self._engine.open_import(blocks)
            self._place(assembly, parts, self._needed(blocks))
        return blocks, assembly

    @contextmanager
    def _pin(self) -> Iterator[dict[PartKey, StoredPart]]:
        """What the own pool holds of this prompt, safe from eviction meanwhile; nothing where it must not be read."""
        prompt = self._prompt
        wanted = prompt.blocks if self._use_pool else 0
        parts = range(len(prompt.layout.parts))
        with self._pool.pin(prompt.key(block, part) for block in range(wanted) for part in parts) as held:
            yield held

    def _resume_after(self, parts: Mapping[PartKey, StoredPart]) -> int:
        prompt = self._prompt
        return longest_resume(prompt.layout, prompt.hashes, parts.__contains__, prompt.blocks)

    def _place(self, assembly: Assembly, parts: Mapping[PartKey, StoredPart], pairs: Iterable[tuple[int, int]]) -> None:
        began = time.monotonic()
        for block, part in pairs:
            assembly.place(block, part, parts[self._prompt.key(block, part)].data)
        self._import_seconds += time.monotonic() - began

    def _needed(self, blocks: int) -> tuple[tuple[int, int], ...]:
        return self._prompt.layout.needed(blocks)

    @property
    def _received_bytes(self) -> int:
        return sum(stored.nbytes for stored in self._received.values())

    def _digest(self) -> str:
        return blocks_digest((block, part, stored.checksum) for (block, part), stored in self._received.items())

    def _describe(
        self, decision: Decision, source: Source, delivery: Delivery, held: int, transfer_seconds: float
    ) -> RemotePart:
        tokens = (decision.blocks - held) * self._prompt.layout.block_tokens
        receipt = delivery.receipt or {}
        return RemotePart(
            node=source.node,
            epoch=delivery.epoch,
            instance=delivery.instance,
            kind=decision.kind,
            job=receipt.get("job"),
            tokens=tokens,
            computed_tokens=receipt.get("computed_tokens", 0),
            pool_tokens=receipt.get("pool_tokens", tokens),
            blocks=len({block for block, _ in self._received}),
            payload_bytes=self._received_bytes,
            blocks_digest=self._digest(),
            transfer_seconds=transfer_seconds,
            link=source.link,
            worker_receipt=dict(receipt) or None,
        )


def explain_fallback(error: PeerError, kept_blocks: int = 0) -> Fallback:
    """Why the head computes locally after all. The reason is the peer's own word for it where the protocol knows it."""
    reason = error.code if isinstance(error, PeerRefused) and error.code in _CODES else error.reason
    return Fallback(error.peer, reason, error.message, kept_blocks)


__all__ = [
    "BlocksGone",
    "Delivery",
    "Errand",
    "Gathered",
    "Gathering",
    "OnPart",
    "Order",
    "Source",
    "explain_fallback",
]
