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
from kakeya_ops.errors import PeerError, StreamCorrupt
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import Fallback, RemotePart
from kakeya_ops.serving.scheduler import Decision

OnPart = Callable[[int, int, StoredPart], None]
"""``(block, part, payload)`` of a verified arrival; called on the thread that reads the stream."""


@dataclass(frozen=True)
class Errand:
    """For whom a peer is asked: `stop` means that nobody waits any more, `nonce` is to come back in its receipt."""

    nonce: str
    stop: StopFlag


@dataclass(frozen=True)
class Order:
    """What is wanted of a peer: blocks ``[from_blocks, blocks)`` of `prompt`, as long as `errand` lasts."""

    prompt: Prompt
    from_blocks: int
    blocks: int
    errand: Errand


@dataclass(frozen=True)
class Delivery:
    """How a peer's stream ended well: its signed receipt, None for a mere fetch."""

    receipt: Mapping[str, Any] | None


class Source(Protocol):
    """A peer that can deliver blocks."""

    @property
    def node(self) -> str:
        """Its node id."""

    @property
    def epoch(self) -> int:
        """When its process started, in nanoseconds of Unix time."""

    @property
    def instance(self) -> str:
        """The random number of its process."""

    @property
    def link(self) -> dict[str, Any]:
        """The way to it, for receipts."""

    def fetch(self, order: Order, on_part: OnPart) -> Delivery:
        """Stream what the peer holds. Raises `PeerError`."""

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        """Have the peer compute the same and stream it meanwhile. Raises `PeerError`."""


@dataclass
class Gathered:
    """A prefix that is ready to be resumed after, and how it came to be. `seconds` by what they were spent on."""

    assembly: Assembly | None
    local_blocks: int
    remote: RemotePart | None = None
    fallback: Fallback | None = None
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

        A fault of the peer is part of the result, not an error.
        """
        began = time.monotonic()
        try:
            return self._stream(decision, source, errand)
        except PeerError as error:
            return self._salvage(source, error, time.monotonic() - began)

    def _stream(self, decision: Decision, source: Source, errand: Errand) -> Gathered:
        with self._pin() as own:
            held = self._resume_after(own)
            assembly = self._engine.open_import(decision.blocks)
            self._place(assembly, own, [pair for pair in self._needed(decision.blocks) if pair[0] < held])
            began = time.monotonic()
            run = source.fetch if decision.kind == "import" else source.compute
            delivery = run(Order(self._prompt, held, decision.blocks, errand), self._arrivals(assembly))
            transfer_seconds = time.monotonic() - began
        self._judge(source, assembly, delivery)
        remote = self._describe(decision, source, delivery, held, transfer_seconds)
        return Gathered(assembly, held, remote, None, {"transfer": transfer_seconds, "import": self._import_seconds})

    def _arrivals(self, assembly: Assembly) -> OnPart:
        def arrive(block: int, part: int, stored: StoredPart) -> None:
            self._received[block, part] = stored
            self._pool.put(self._prompt.key(block, part), stored)
            began = time.monotonic()
            assembly.place(block, part, stored.data)
            self._import_seconds += time.monotonic() - began

        return arrive

    def _judge(self, source: Source, assembly: Assembly, delivery: Delivery) -> None:
        if not assembly.complete:
            raise StreamCorrupt(source.node, "the stream ended well but lacks blocks")
        if delivery.receipt is not None and delivery.receipt["blocks_digest"] != self._digest():
            raise StreamCorrupt(source.node, "the receipt names other blocks than those that arrived")

    def _salvage(self, source: Source, error: PeerError, wasted_seconds: float) -> Gathered:
        """Resume after whatever the own pool and the broken stream hold together."""
        own_blocks = self.local_blocks if not self._received else 0
        blocks, assembly = self._assemble()
        seconds = {"wasted": wasted_seconds, "import": self._import_seconds}
        fallback = Fallback(source.node, error.reason, error.message, blocks - own_blocks)
        return Gathered(assembly, own_blocks, None, fallback, seconds)

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

    def _digest(self) -> str:
        return blocks_digest((block, part, stored.checksum) for (block, part), stored in self._received.items())

    def _describe(
        self, decision: Decision, source: Source, delivery: Delivery, held: int, transfer_seconds: float
    ) -> RemotePart:
        tokens = (decision.blocks - held) * self._prompt.layout.block_tokens
        receipt = delivery.receipt or {}
        return RemotePart(
            node=source.node,
            epoch=source.epoch,
            instance=source.instance,
            kind=decision.kind,
            job=receipt.get("job"),
            tokens=tokens,
            computed_tokens=receipt.get("computed_tokens", 0),
            pool_tokens=receipt.get("pool_tokens", tokens),
            blocks=len({block for block, _ in self._received}),
            payload_bytes=sum(stored.nbytes for stored in self._received.values()),
            blocks_digest=self._digest(),
            transfer_seconds=transfer_seconds,
            link=source.link,
            worker_receipt=dict(receipt) or None,
        )


__all__ = ["Delivery", "Errand", "Gathered", "Gathering", "OnPart", "Order", "Source"]
