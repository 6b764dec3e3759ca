"""The fleet around a head: who is known, how each is reached, and who may be asked for a prefix now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from kakeya_ops.errors import PeerTimeout, PeerUnreachable
from kakeya_ops.kv.identity import Runtime
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.compatibility import Difference, find_difference
from kakeya_ops.serving.engagements import Engagements
from kakeya_ops.serving.estimates import Expected, PackedShare, PeerEstimates, read_job
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.links import Link, packed_rate
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.quarantine import Held, Quarantine
from kakeya_ops.serving.receipts import RemotePart
from kakeya_ops.serving.sources import PeerSource, card_curve
from kakeya_ops.serving.standing import Standing
from kakeya_ops.wire.cards import Card, Role
from kakeya_ops.wire.packing import PACKING

_LINK_REASONS = frozenset({PeerUnreachable.reason, PeerTimeout.reason})
"""Faults that may be those of the way rather than of the node."""


@dataclass(frozen=True)
class Known:
    """One other node: its card, the link in use, why its KV is not ours, and whether it may be asked now.

    A host of the inventory that has not shown itself, or not lately, has no card; its link tells why. With a `conflict`
    two running nodes claim its id, and neither is asked; nor is one that an audit has `held`.
    """

    node: str
    role: Role
    card: Card | None
    link: Link | None
    difference: Difference | None
    usable: bool
    conflict: bool = False
    held: Held | None = None

    @property
    def reachable(self) -> bool:
        """Whether the last attempt to talk to it over its link succeeded."""
        return self.link is not None and self.link.up


@dataclass(frozen=True)
class FleetSettings:
    """`hosts` are those of the inventory with their roles. Without `packs` blocks always travel as they are.

    Nobody whom the `quarantine` holds is asked for anything.
    """

    hosts: Mapping[str, Role]
    packs: bool = True
    quarantine: Quarantine = field(default_factory=Quarantine)


class Fleet:
    """`kakeya_ops.serving.neighbours.Neighbourhood`, from the cards and links of one node. Thread-safe."""

    def __init__(self, node: Node, exchange: Exchange, runtime: Runtime, settings: FleetSettings) -> None:
        self._node = node
        self._exchange = exchange
        self._runtime = runtime
        self._packs = settings.packs
        self._quarantine = settings.quarantine
        self._hosts = {name: role for name, role in settings.hosts.items() if name != node.id}
        self._standing = Standing(time.monotonic)
        self._estimates = PeerEstimates(time.monotonic)
        self._packed_share = PackedShare(time.monotonic)
        self._engagements = Engagements(time.monotonic)

    def known(self) -> list[Known]:
        """Every other host of the inventory, and every other node whose card counts now, by name."""
        links: Mapping[str, Link] = self._exchange.links()
        cards = {name: card for name, card in self._node.cards.fresh().items() if name != self._node.id}
        conflicts = {conflict.node for conflict in self._node.cards.conflicts()}
        return [
            self._judge(name, cards.get(name), links.get(name), conflict=name in conflicts)
            for name in sorted(cards | self._hosts)
        ]

    def usable(self) -> list[PeerSource]:
        """See `Neighbourhood.usable`."""
        sources = (self._source(known) for known in self.known() if known.usable)
        return [source for source in sources if source is not None]

    def ways(self, node: str) -> list[Link]:
        """Every way to `node`, in the order of the inventory."""
        return self._exchange.ways(node)

    def expected(self, node: str) -> Expected:
        """What experience with `node` adds to its card."""
        expected, doubt = self._estimates.of(node).expected, self._standing.doubt(node)
        return replace(expected, doubt=doubt, engaged_seconds=self._engagements.queue_seconds(node))

    def describe_way(self, card: Card, link: Link) -> dict[str, Any]:
        """`link` for receipts and predictions, and how blocks are packed for it, where that makes them come sooner."""
        share = self._packed_share.value
        pays = packed_rate(link.bulk_bytes_per_second, share) is not None
        if not self._packs or PACKING not in card.packings or not pays:
            return link.to_json()
        return link.to_json() | {"packing": PACKING, "packed_share": share}

    def engaged(self, node: str, seconds: float) -> AbstractContextManager[None]:
        """See `Neighbourhood.engaged`."""
        return self._engagements.engaged(node, seconds)

    def failed(self, node: str, reason: str) -> None:
        """See `Neighbourhood.failed`."""
        link = self._exchange.links().get(node)
        if reason in _LINK_REASONS and link is not None and self._exchange.avoid(node, link.endpoint):
            return
        self._standing.failed(node)

    def succeeded(self, node: str) -> None:
        """See `Neighbourhood.succeeded`."""
        self._standing.succeeded(node)

    def transferred(self, remote: RemotePart) -> None:
        """See `Neighbourhood.transferred`."""
        endpoint = Endpoint(remote.link["address"], remote.link["port"], remote.link["network"])
        seconds: float | None = remote.transfer_seconds
        if remote.worker_receipt is not None:
            seconds = self._learn(remote)
        share = remote.link.get("packed_share", 1.0)
        if share < 1:
            self._packed_share.observe(share)
        if seconds is not None:
            self._exchange.observe_transfer(remote.node, endpoint, int(remote.payload_bytes * share), seconds)

    def _learn(self, remote: RemotePart) -> float | None:
        """Learn from a job how the worker is; the seconds that its link took, where they tell the rate of it."""
        card = self._node.cards.card(remote.node)
        job = read_job(remote.worker_receipt or {}, remote.transfer_seconds, card.load.queue_seconds if card else 0.0)
        self._estimates.of(remote.node).observe(job, card_curve(card) if card else None)
        believed = (remote.link["bytes_per_second"] or 0.0) / remote.link.get("packed_share", 1.0)
        if job.link_bytes_per_second is None and job.least_bytes_per_second <= believed:
            return None
        return job.payload_bytes / (job.link_bytes_per_second or job.least_bytes_per_second)

    def _judge(self, name: str, card: Card | None, link: Link | None, *, conflict: bool) -> Known:
        held = self._quarantine.holds(name)
        if card is None:
            return Known(name, self._hosts[name], None, link, None, usable=False, conflict=conflict, held=held)
        difference = find_difference(card, self._node.identity, self._runtime)
        ready = card.healthy and card.role != "head" and link is not None and link.up and not conflict
        usable = ready and difference is None and held is None and self._standing.usable(name)
        return Known(name, card.role, card, link, difference, usable, conflict, held)

    def _source(self, known: Known) -> PeerSource | None:
        if known.card is None or known.link is None:
            return None
        client = self._exchange.client(known.node, known.link)
        if client is None:
            return None
        link, expected = self.describe_way(known.card, known.link), self.expected(known.node)
        return PeerSource(known.card, client, self._node.identity.digest, link, expected)


__all__ = ["Fleet", "FleetSettings", "Known"]
