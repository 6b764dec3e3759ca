"""Bring a prompt's prefix together: from the head's own pool, and from a peer while it still computes, or from all that
hold it.

Whatever goes wrong with peers ends in a local prefill that starts after the blocks which did arrive: each of them has
been verified by itself. Only where a peer's receipt contradicts what it sent nothing of that is kept, since then it is
not known what the peer computed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import PeerError, StreamCorrupt
from kakeya_ops.kv.pool import BlockPool, StoredPart
from kakeya_ops.peer.client import ReceiptRejected
from kakeya_ops.peer.connection import CallAborted
from kakeya_ops.serving.division import Place
from kakeya_ops.serving.holdings import Holdings
from kakeya_ops.serving.joint_fetch import JointFetch, Offer
from kakeya_ops.serving.patience import Overrun
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import Fallback, RemotePart, SourcePart
from kakeya_ops.serving.scheduler import Decision
from kakeya_ops.serving.supply import BlocksGone, Delivery, Errand, OnPart, Order, Source, explain_fallback


@dataclass
class Gathered:
    """A prefix that is ready to be resumed after, and how it came to be. `seconds` by what they were spent on.

    `received_bytes` came from peers, also when a stream broke; `checksums` are of all payloads, by who brought them.
    """

    assembly: Assembly | None
    local_blocks: int
    remote: RemotePart | None = None
    fallback: Fallback | None = None
    received_bytes: int = 0
    checksums: Mapping[str, Mapping[Place, bytes]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    sources: tuple[SourcePart, ...] = ()
    """Each peer, where several were asked."""

    @property
    def blocks(self) -> int:
        """How many blocks need not be computed here."""
        return self.assembly.blocks if self.assembly else 0


class Gathering:
    """One request's prefix. Used by one thread."""

    def __init__(self, engine: Engine, pool: BlockPool, prompt: Prompt, *, use_pool: bool) -> None:
        self.prompt = prompt
        self._holdings = Holdings(engine, pool, prompt, use_pool=use_pool)
        self._own_blocks = 0
        self._asked = ""
        self._joint: JointFetch | None = None

    @property
    def local_blocks(self) -> int:
        """How many blocks the head's own pool lets this prompt resume after."""
        return self._holdings.local_blocks

    def from_pool(self) -> Gathered:
        """What the head's own pool holds, and nothing else."""
        blocks, assembly = self._holdings.assemble()
        return Gathered(assembly, blocks, seconds={"import": self._holdings.import_seconds})

    def from_peer(self, decision: Decision, source: Source, errand: Errand, others: Sequence[Offer] = ()) -> Gathered:
        """The prefix up to `decision.blocks`: from the own pool as far as it goes, then from `source`.

        An import comes from `others` too, which hold some of it, all at the same time; when one fails the rest of them
        bring what it has not. A fault of the peer is part of the result, not an error. Raises `Cancelled` when nobody
        waits any more.
        """
        began, self._asked = time.monotonic(), source.node
        try:
            if decision.kind == "import" and others:
                return self._stream_jointly(decision, (Offer(source, decision.blocks), *others), errand)
            return self._stream(decision, source, errand)
        except CallAborted:
            if errand.overrun():
                return self._salvage(Overrun(source.node), time.monotonic() - began)
            raise Cancelled from None
        except ReceiptRejected as error:
            self._holdings.discard()
            return self._salvage(error, time.monotonic() - began)
        except PeerError as error:
            return self._salvage(error, time.monotonic() - began)

    def _stream(self, decision: Decision, source: Source, errand: Errand) -> Gathered:
        with self._holdings.opened(decision.blocks) as (assembly, held):
            self._own_blocks = held
            if held >= decision.blocks:
                return self._at_hand(assembly, held)
            began = time.monotonic()
            run = source.fetch if decision.kind == "import" else source.compute
            delivery = run(Order(self.prompt, held, decision.blocks, errand), self._arrivals(assembly, errand))
            transfer_seconds = time.monotonic() - began
        self._judge(source, assembly, delivery)
        remote = self._describe(decision, source, delivery, transfer_seconds)
        seconds = {"transfer": transfer_seconds, "import": self._holdings.import_seconds}
        return self._gathered(Gathered(assembly, held, remote, seconds=seconds))

    def _stream_jointly(self, decision: Decision, offers: Sequence[Offer], errand: Errand) -> Gathered:
        with self._holdings.opened(decision.blocks) as (assembly, held):
            self._own_blocks = held
            if held >= decision.blocks:
                return self._at_hand(assembly, held)
            began = time.monotonic()
            order = Order(self.prompt, held, decision.blocks, errand)
            self._joint = JointFetch(order, offers, self._arrivals(assembly, errand))
            if not self._joint.run():
                raise self._joint.error
            transfer_seconds = time.monotonic() - began
        shares = self._joint.shares
        sources = {offer.source.node: offer.source for offer in offers}
        delivery = Delivery(shares[0].epoch or 0, shares[0].instance or "", None)
        remote = self._describe(decision, sources[shares[0].node], delivery, transfer_seconds)
        seconds = {"transfer": transfer_seconds, "import": self._holdings.import_seconds}
        return self._gathered(
            Gathered(assembly, held, replace(remote, sources=shares), seconds=seconds, sources=shares)
        )

    def _at_hand(self, assembly: Assembly, held: int) -> Gathered:
        """All of it came into the own pool after it was decided to ask a peer, by another request."""
        return Gathered(assembly, held, seconds={"import": self._holdings.import_seconds})

    def _arrivals(self, assembly: Assembly, errand: Errand) -> OnPart:
        """Several threads may call it; progress is told by the furthest block, as if all came in order."""
        most, seen = self._own_blocks, set[int]()
        lock = threading.Lock()

        def arrive(block: int, part: int, stored: StoredPart) -> None:
            nonlocal most
            self._holdings.take(assembly, block, part, stored)
            with lock:
                if block not in seen:
                    seen.add(block)
                    errand.on_block()
                if block >= most:
                    most = block + 1
                    errand.on_progress(most)

        return arrive

    def _judge(self, source: Source, assembly: Assembly, delivery: Delivery) -> None:
        if not assembly.complete and delivery.receipt is None:
            raise BlocksGone(source.node)
        if not assembly.complete:
            raise StreamCorrupt(source.node, "the stream ended well but lacks blocks")
        if delivery.receipt is not None and delivery.receipt["blocks_digest"] != self._holdings.received_digest:
            raise ReceiptRejected(source.node, "the receipt names other blocks than those that arrived")

    def _salvage(self, error: PeerError, wasted_seconds: float) -> Gathered:
        """Resume after whatever the own pool and the broken stream hold together."""
        blocks, assembly = self._holdings.assemble()
        own_blocks = min(self._own_blocks, blocks)
        fallback = explain_fallback(error, blocks - own_blocks)
        seconds = {"wasted": wasted_seconds, "import": self._holdings.import_seconds}
        shares = self._joint.shares if self._joint else ()
        return self._gathered(Gathered(assembly, own_blocks, None, fallback, seconds=seconds, sources=shares))

    def _gathered(self, gathered: Gathered) -> Gathered:
        """With what came from peers."""
        gathered.received_bytes = self._holdings.received_bytes
        checksums = self._holdings.received_checksums
        brought = self._joint.brought if self._joint else {self._asked: checksums.keys()}
        gathered.checksums = {
            node: {place: checksums[place] for place in places if place in checksums}
            for node, places in brought.items()
        }
        return gathered

    def _describe(self, decision: Decision, source: Source, delivery: Delivery, transfer_seconds: float) -> RemotePart:
        tokens = (decision.blocks - self._own_blocks) * self.prompt.layout.block_tokens
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
            blocks=self._holdings.received_blocks,
            payload_bytes=self._holdings.received_bytes,
            blocks_digest=self._holdings.received_digest,
            transfer_seconds=transfer_seconds,
            link=source.link,
            worker_receipt=dict(receipt) or None,
        )


__all__ = ["Gathered", "Gathering"]
