"""A peer as a source of blocks, over the peer protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from kakeya_ops.engine.rate import PrefillCurve
from kakeya_ops.errors import PeerError
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.peer.client import BlockArrival, OnBlock, OnProgress, PeerClient, PrefillCall, WantedBlock
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.estimates import Expected
from kakeya_ops.serving.links import packed_rate
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.scheduler import Candidate
from kakeya_ops.serving.supply import Delivery, Errand, OnPart, Order
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.bodies import LookupReply, PrefillRequest, Progress
from kakeya_ops.wire.cards import Card


class OutOfBounds(PeerError):
    """What is to be asked is beyond what a body of the peer protocol may hold."""

    reason = "out_of_bounds"


@dataclass(frozen=True)
class PeerSource:
    """One peer at its best endpoint. `link` describes that endpoint for receipts: network, address, port, RTT, rate,
    and where blocks are packed for it, how, and how much is left of them.

    `expected` is what experience with it adds to its card.
    """

    card: Card
    client: PeerClient
    identity: str
    link: dict[str, Any]
    expected: Expected = field(default_factory=Expected)

    @property
    def node(self) -> str:
        """The peer's node id."""
        return self.card.node

    @property
    def capacity_bytes(self) -> int:
        """The budget of its pool, as its card says."""
        return self.card.pool.budget_bytes

    def source(self) -> PeerSource:
        """Itself: what is asked can also deliver."""
        return self

    def look_up(self, prompt: Prompt, stop: StopFlag) -> Candidate:
        """Ask what the peer holds of `prompt`. Raises `PeerError`, also when `stop` is set."""
        reply = self.ask_held(prompt.hashes[: prompt.blocks], stop)
        found = make_candidate(self.card, self.link, self.expected, reply.resume_blocks)
        # What waits there is the very job that would be joined.
        return replace(found, queue_seconds=0.0, under_way=True) if reply.under_way else found

    def ask_held(self, hashes: Sequence[BlockHash], stop: StopFlag) -> LookupReply:
        """What its pool holds of these blocks. Raises `PeerError`, also when `stop` is set."""
        with _bounded(self.node):
            return self.client.lookup(self.identity, hashes, stop)

    def store(self, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag) -> None:
        """Have it keep `parts`, all or none. Raises `PeerError`, also when `stop` is set."""
        self.client.put_blocks(self.identity, parts, stop)

    def fetch(self, order: Order, on_part: OnPart) -> Delivery:
        """Stream what the peer holds. Raises `PeerError`."""
        prompt = order.prompt
        wanted = [WantedBlock(block, part, prompt.hashes[block]) for block, part in order.places]
        with _bounded(self.node):
            on_block, packing = self._passing(on_part), self.link.get("packing")
            report = self.client.fetch(self.identity, wanted, on_block, order.errand.stop, packing)
        return Delivery(report.header.epoch, report.header.instance, None)

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        """Have the peer compute the same and stream it meanwhile. Raises `PeerError`."""
        with _bounded(self.node):
            hashes = order.prompt.hashes[: order.blocks]
            call = PrefillCall(self._request(order), hashes, self._passing(on_part), _telling(order.errand))
            receipt = self.client.prefill(call, order.errand.stop)
        return Delivery(receipt.epoch, receipt.instance, receipt.to_json())

    def _request(self, order: Order) -> PrefillRequest:
        prompt = order.prompt
        return PrefillRequest(
            identity=self.identity,
            tenant=prompt.tenant,
            tokens=prompt.tokens[: order.blocks * prompt.layout.block_tokens],
            from_blocks=order.from_blocks,
            blocks=order.blocks,
            nonce=order.errand.nonce,
            request_id=prompt.request_id,
            background=order.background,
            packing=self.link.get("packing"),
        )

    def _passing(self, on_part: OnPart) -> OnBlock:
        """Pass on what arrives; the link tells how much smaller it was on the way, where it was packed."""
        sent = arrived = 0

        def arrive(arrival: BlockArrival) -> None:
            nonlocal sent, arrived
            sent, arrived = sent + arrival.wire_bytes, arrived + arrival.stored.nbytes
            if self.link.get("packing"):
                self.link["packed_share"] = round(sent / arrived, 4)
            on_part(arrival.block, arrival.part, arrival.stored)

        return arrive


def make_candidate(card: Card, link: Mapping[str, Any], expected: Expected, resume_blocks: int = 0) -> Candidate:
    """The peer of `card` at the end of `link` as the scheduler sees it; its pool has `resume_blocks` of the prompt."""
    curve = card_curve(card)
    return Candidate(
        node=card.node,
        computes=card.role == "worker",
        resume_blocks=resume_blocks,
        tokens_per_second=card.prefill_tokens_per_second,
        queue_seconds=max(card.load.queue_seconds * expected.queue_factor, expected.engaged_seconds),
        rtt_seconds=link["rtt_seconds"] or 0.0,
        bytes_per_second=_payload_rate(link),
        curve=curve.scaled(expected.compute_factor) if curve else None,
        overhead_seconds=expected.overhead_seconds,
        doubt=expected.doubt,
    )


def _payload_rate(link: Mapping[str, Any]) -> float | None:
    """Bytes of KV a second, which are more than those of the link where they travel packed."""
    rate: float | None = link["bytes_per_second"]
    return packed_rate(rate, link["packed_share"]) or rate if link.get("packing") else rate


def card_curve(card: Card) -> PrefillCurve | None:
    """How fast the node says it is by length, or everywhere alike; None where it does not know."""
    if card.prefill_seconds_per_token is not None:
        return PrefillCurve(card.prefill_seconds_per_token, card.prefill_seconds_per_square or 0.0)
    rate = card.prefill_tokens_per_second
    return PrefillCurve(1 / rate) if rate else None


@contextmanager
def _bounded(node: str) -> Iterator[None]:
    """Turn the refusal of a body that is being made into a `PeerError`: such a prompt is computed here."""
    try:
        yield
    except ValidationError as error:
        raise OutOfBounds(node, f"cannot be asked: {error.error_count()} fields are out of bounds") from error


def _telling(errand: Errand) -> OnProgress:
    def tell(progress: Progress) -> None:
        errand.on_queue(progress.queue_seconds if progress.stage == "queued" else 0.0)

    return tell


__all__ = ["OutOfBounds", "PeerSource", "card_curve", "make_candidate"]
