"""A peer as a source of blocks, over the peer protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kakeya_ops.errors import StreamCorrupt
from kakeya_ops.peer.client import BlockArrival, OnBlock, PeerClient, PrefillCall, WantedBlock
from kakeya_ops.serving.gather import Delivery, OnPart, Order
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.scheduler import Candidate
from kakeya_ops.wire.bodies import PrefillRequest
from kakeya_ops.wire.cards import Card


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

    @property
    def epoch(self) -> int:
        """When the peer's process started, in nanoseconds of Unix time."""
        return self.card.epoch

    @property
    def instance(self) -> str:
        """The random number of the peer's process."""
        return self.card.instance

    def source(self) -> PeerSource:
        """Itself: what is asked can also deliver."""
        return self

    def look_up(self, prompt: Prompt) -> Candidate:
        """Ask what the peer holds of `prompt`. Raises `PeerError`."""
        reply = self.client.lookup(self.identity, prompt.hashes[: prompt.blocks])
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
        report = self.client.fetch(self.identity, wanted, _passing(on_part), order.errand.stop)
        if (report.header.epoch, report.header.instance) != (self.epoch, self.instance):
            raise StreamCorrupt(self.node, "is another process than the one that its card describes")
        return Delivery(None)

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        """Have the peer compute the same and stream it meanwhile. Raises `PeerError`."""
        prompt = order.prompt
        request = PrefillRequest(
            identity=self.identity,
            tenant=prompt.tenant,
            tokens=prompt.tokens[: order.blocks * prompt.layout.block_tokens],
            from_blocks=order.from_blocks,
            blocks=order.blocks,
            nonce=order.errand.nonce,
            request_id=prompt.request_id,
        )
        call = PrefillCall(request, prompt.hashes[: order.blocks], _passing(on_part))
        return Delivery(self.client.prefill(call, order.errand.stop).to_json())


def _passing(on_part: OnPart) -> OnBlock:
    def arrive(arrival: BlockArrival) -> None:
        on_part(arrival.block, arrival.part, arrival.stored)

    return arrive


__all__ = ["PeerSource"]
