"""A peer as a source of blocks, over the peer protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kakeya_ops.errors import PeerError
from kakeya_ops.peer.client import BlockArrival, OnBlock, PeerClient, PrefillCall, WantedBlock
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.scheduler import Candidate
from kakeya_ops.serving.supply import Delivery, OnPart, Order
from kakeya_ops.wire.bodies import PrefillRequest
from kakeya_ops.wire.cards import Card


class OutOfBounds(PeerError):
    """What is to be asked is beyond what a body of the peer protocol may hold."""

    reason = "out_of_bounds"


@dataclass(frozen=True)
class PeerSource:
    """One peer at its best endpoint. `link` describes that endpoint for receipts: network, address, port, RTT, rate."""

    card: Card
    client: PeerClient
    identity: str
    link: dict[str, Any]

    @property
    def node(self) -> str:
        """The peer's node id."""
        return self.card.node

    def source(self) -> PeerSource:
        """Itself: what is asked can also deliver."""
        return self

    def look_up(self, prompt: Prompt, stop: StopFlag) -> Candidate:
        """Ask what the peer holds of `prompt`. Raises `PeerError`, also when `stop` is set."""
        with _bounded(self.node):
            reply = self.client.lookup(self.identity, prompt.hashes[: prompt.blocks], stop)
        return Candidate(
            node=self.node,
            computes=self.card.role == "worker",
            resume_blocks=reply.resume_blocks,
            tokens_per_second=self.card.prefill_tokens_per_second,
            queue_seconds=self.card.load.queue_seconds,
            rtt_seconds=self.link["rtt_seconds"] or 0.0,
            bytes_per_second=self.link["bytes_per_second"],
        )

    def fetch(self, order: Order, on_part: OnPart) -> Delivery:
        """Stream what the peer holds. Raises `PeerError`."""
        prompt = order.prompt
        wanted = [
            WantedBlock(block, part, prompt.hashes[block])
            for block, part in prompt.layout.needed(order.blocks)
            if block >= order.from_blocks
        ]
        with _bounded(self.node):
            report = self.client.fetch(self.identity, wanted, _passing(on_part), order.errand.stop)
        return Delivery(report.header.epoch, report.header.instance, None)

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        """Have the peer compute the same and stream it meanwhile. Raises `PeerError`."""
        with _bounded(self.node):
            call = PrefillCall(self._request(order), order.prompt.hashes[: order.blocks], _passing(on_part))
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
        )


@contextmanager
def _bounded(node: str) -> Iterator[None]:
    """Turn the refusal of a body that is being made into a `PeerError`: such a prompt is computed here."""
    try:
        yield
    except ValidationError as error:
        raise OutOfBounds(node, f"cannot be asked: {error.error_count()} fields are out of bounds") from error


def _passing(on_part: OnPart) -> OnBlock:
    def arrive(arrival: BlockArrival) -> None:
        on_part(arrival.block, arrival.part, arrival.stored)

    return arrive


__all__ = ["OutOfBounds", "PeerSource"]
