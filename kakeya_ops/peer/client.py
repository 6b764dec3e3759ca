"""A blocking client of one peer at one endpoint: the whole of the peer protocol as calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kakeya_ops.errors import InputError, SignatureRejected, StreamCorrupt
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.peer.connection import DEFAULT_TIMEOUTS, Endpoint, StopFlag, Timeouts
from kakeya_ops.peer.signed import Caller, Expected, SignedCalls
from kakeya_ops.peer.stream import IncomingStream, stored
from kakeya_ops.units import BlockHash, NodeId
from kakeya_ops.wire.bodies import (
    FetchRequest,
    LookupReply,
    LookupRequest,
    PrefillRequest,
    Progress,
    StreamHeader,
    WantedPart,
    WorkerReceipt,
)
from kakeya_ops.wire.cards import Card, CardsExchange
from kakeya_ops.wire.frames import FrameHead, FrameType
from kakeya_ops.wire.paths import BLOCKS_PATH, CARD_PATH, CARDS_PATH, FETCH_PATH, LOOKUP_PATH, PREFILL_PATH


class ReceiptRejected(StreamCorrupt):
    """A stream whose receipt is missing, not signed, of another request, or for other blocks: none of it is kept."""


class WantedBlock(NamedTuple):
    """One payload to be fetched: a part of block number `block` of a prompt."""

    block: int
    part: int
    hash: BlockHash


@dataclass(frozen=True, slots=True)
class BlockArrival:
    """One payload that has arrived and is checked: length, order, signature, checksum, and that it was asked for.

    It has travelled as `wire_bytes` bytes, which are fewer than its own where it was packed.
    """

    block: int
    part: int
    hash: BlockHash
    stored: StoredPart
    wire_bytes: int = 0


OnBlock = Callable[[BlockArrival], None]
OnProgress = Callable[[Progress], None]
"""Both are called on the thread of the call; what they raise ends it."""


@dataclass(frozen=True)
class FetchReport:
    """What a fetch brought; fewer `parts` than were wanted means that the peer did not hold the others any more."""

    header: StreamHeader
    parts: int
    payload_bytes: int
    seconds: float


@dataclass(frozen=True)
class PrefillCall:
    """A prefill request, the hashes of its blocks, and who is told of what arrives."""

    request: PrefillRequest
    hashes: Sequence[BlockHash]
    on_block: OnBlock
    on_progress: OnProgress = lambda progress: None


class PeerClient:
    """Thread-safe. Every method raises `PeerError` and nothing else, whatever the peer or the network does."""

    def __init__(
        self, node: NodeId, endpoint: Endpoint, caller: Caller, layout: KvLayout, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> None:
        self.node = node
        self.endpoint = endpoint
        self._caller = caller
        self._layout = layout
        self._calls = SignedCalls(node, endpoint, caller, timeouts)

    def card(self, stop: StopFlag | None = None) -> Card:
        """The peer's own card."""
        return self._calls.ask("GET", CARD_PATH, b"", Card, stop or StopFlag())

    def exchange(self, cards: Iterable[Card], stop: StopFlag | None = None) -> CardsExchange:
        """Tell the peer of `cards`; the cards that it knows. Raises `ReleaseMismatch` if its own cannot be read."""
        body = CardsExchange(cards=tuple(cards)).encode()
        known = self._calls.ask("POST", CARDS_PATH, body, CardsExchange, stop or StopFlag())
        known.check(self.node)
        return known

    def lookup(self, identity: str, hashes: Sequence[BlockHash], stop: StopFlag | None = None) -> LookupReply:
        """How far the peer's pool would let a prompt with these block hashes be resumed."""
        body = LookupRequest(identity=identity, hashes=tuple(hash.hex() for hash in hashes)).encode()
        reply = self._calls.ask("POST", LOOKUP_PATH, body, LookupReply, stop or StopFlag())
        if reply.resume_blocks > len(hashes):
            raise StreamCorrupt(self.node, "claims to hold more blocks than it was asked for")
        return reply

    def fetch(
        self,
        identity: str,
        wanted: Sequence[WantedBlock],
        on_block: OnBlock,
        stop: StopFlag | None = None,
        packing: Literal["exponents"] | None = None,
    ) -> FetchReport:
        """Have those of `wanted` sent that the peer's pool holds, in their order, packed where that is asked for.

        A peer whose card does not name that packing refuses the request.
        """
        parts = tuple(WantedPart(hash=want.hash.hex(), part=want.part, block=want.block) for want in wanted)
        body = FetchRequest(identity=identity, blocks=parts, packing=packing).encode()
        expected = Expected(self._layout, _by_block(wanted), packed=packing is not None)
        began = time.monotonic()
        count = payload_bytes = 0
        left = {(want.block, want.part) for want in wanted}
        with self._calls.stream(FETCH_PATH, body, expected, stop or StopFlag()) as stream:
            frames = iter(stream)
            header = self._read_header(stream, next(frames), identity)
            for head, payload in frames:
                if head.type is not FrameType.BLOCK or (head.block, head.part) not in left:
                    raise StreamCorrupt(self.node, "sent what was not asked for")
                left.remove((head.block, head.part))
                on_block(BlockArrival(head.block, head.part, head.hash, stored(head, payload), head.length))
                count, payload_bytes = count + 1, payload_bytes + payload.nbytes
        return FetchReport(header, count, payload_bytes, time.monotonic() - began)

    def prefill(self, call: PrefillCall, stop: StopFlag | None = None) -> WorkerReceipt:
        """Have the peer make the KV of a prompt, and send it while it computes.

        The receipt is the peer's signed account of exactly what has arrived for this request; raises `ReceiptRejected`
        for any other.
        """
        body = call.request.encode()
        expected = Expected(self._layout, call.hashes, packed=call.request.packing is not None)
        with self._calls.stream(PREFILL_PATH, body, expected, stop or StopFlag()) as stream:
            frames = iter(stream)
            header = self._read_header(stream, next(frames), call.request.identity)
            job = _Job(self.node, call, stream)
            for head, payload in frames:
                job.take(head, payload)
        job.check(header, self._caller)
        assert job.receipt is not None
        return job.receipt

    def put_blocks(
        self, identity: str, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag | None = None
    ) -> int:
        """Store `parts` in the peer's pool, all or none; how many of them it holds now."""
        return self._calls.upload(BLOCKS_PATH, identity, parts, LookupReply, stop or StopFlag()).parts_held

    def close(self) -> None:
        """Close the idle connections; the client may still be used."""
        self._calls.close()

    def _read_header(self, stream: IncomingStream, frame: tuple[FrameHead, memoryview], identity: str) -> StreamHeader:
        header = stream.parse(StreamHeader, frame[1])
        if header.node != self.node or header.identity != identity:
            raise StreamCorrupt(self.node, f"sent blocks of {header.node} under identity {header.identity[:12]}")
        return header


def _by_block(wanted: Sequence[WantedBlock]) -> Sequence[BlockHash]:
    """The hashes by block number; blocks that are not wanted have one that nothing matches."""
    hashes = [BlockHash(b"")] * (max((want.block for want in wanted), default=-1) + 1)
    for want in wanted:
        hashes[want.block] = want.hash
    return hashes


class _Job:
    """What arrives for one prefill request, in the only order that makes sense."""

    def __init__(self, peer: str, call: PrefillCall, stream: IncomingStream) -> None:
        self.receipt: WorkerReceipt | None = None
        self._peer = peer
        self._call = call
        self._stream = stream
        self._arrived: dict[tuple[int, int], bytes] = {}

    def take(self, head: FrameHead, payload: memoryview) -> None:
        """Heed one frame."""
        if self.receipt is not None:
            raise StreamCorrupt(self._peer, "sent frames after its receipt")
        if head.type is FrameType.BLOCK:
            self._take_block(head, payload)
        elif head.type is FrameType.PROGRESS:
            self._call.on_progress(self._stream.parse(Progress, payload))
        else:
            self.receipt = self._read_receipt(payload)

    def _read_receipt(self, payload: memoryview) -> WorkerReceipt:
        try:
            return WorkerReceipt.parse(bytes(payload))
        except InputError as error:
            raise ReceiptRejected(self._peer, error.message) from error

    def check(self, header: StreamHeader, caller: Caller) -> None:
        """Raise `ReceiptRejected` unless the receipt is signed, about this request, and for exactly what arrived."""
        receipt, request = self.receipt, self._call.request
        if receipt is None:
            raise ReceiptRejected(self._peer, "ended its stream without a receipt")
        if caller.key is not None:
            try:
                receipt.verify([caller.key])
            except SignatureRejected as error:
                raise ReceiptRejected(self._peer, error.message) from error
        said = (receipt.node, receipt.epoch, receipt.instance, receipt.identity, receipt.job, receipt.request_nonce)
        known = (header.node, header.epoch, header.instance, request.identity, header.job, request.nonce)
        if said != known:
            raise ReceiptRejected(self._peer, "sent a receipt of another request")
        if receipt.blocks_digest != blocks_digest((*place, checksum) for place, checksum in self._arrived.items()):
            raise ReceiptRejected(self._peer, "sent a receipt for other blocks than those that arrived")

    def _take_block(self, head: FrameHead, payload: memoryview) -> None:
        request = self._call.request
        if (head.block, head.part) in self._arrived or not request.from_blocks <= head.block < request.blocks:
            raise StreamCorrupt(self._peer, "sent a block twice, or one that was not asked for")
        self._arrived[head.block, head.part] = head.checksum
        self._call.on_block(BlockArrival(head.block, head.part, head.hash, stored(head, payload), head.length))


__all__ = [
    "BLOCKS_PATH",
    "CARDS_PATH",
    "CARD_PATH",
    "FETCH_PATH",
    "LOOKUP_PATH",
    "PREFILL_PATH",
    "BlockArrival",
    "FetchReport",
    "OnBlock",
    "OnProgress",
    "PeerClient",
    "PrefillCall",
    "ReceiptRejected",
    "WantedBlock",
]
