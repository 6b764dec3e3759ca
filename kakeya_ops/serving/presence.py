"""A running node as its peers meet it: its name, its keys, the cards it knows. What it can do is for others to add."""

from __future__ import annotations

import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from kakeya_ops import __version__
from kakeya_ops.certificates import Certificates
from kakeya_ops.kv.identity import WIRE_VERSION
from kakeya_ops.peer.room import Room
from kakeya_ops.peer.signed import Caller
from kakeya_ops.secret import Secret
from kakeya_ops.serving.card_book import CardBook
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.faults import Faults
from kakeya_ops.serving.links import Link
from kakeya_ops.serving.metrics import PresenceCollector
from kakeya_ops.serving.process_memory import read_footprint
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import Card, CardLink, CardsExchange, Endpoint, Load, NodeMemory, PoolUse, Role, UnreadCard
from kakeya_ops.wire.signing import NodeSigner, NonceBook, RequestGate

CARD_SECONDS = 15.0
"""How long a card counts; nodes exchange cards several times as often."""
_MOST_ERROR_CHARACTERS = 512
_MOST_TOLD = 64

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeSettings:
    """What a node is told. `keys` are the fleet's, newest first; none at all means an unsigned fleet on loopback.

    Without `certificates` it neither serves nor reaches what wants TLS. `drill` is whether faults may be armed in it.
    """

    id: NodeId
    role: Role
    tenant: str
    keys: Sequence[Secret] = ()
    endpoints: Sequence[Endpoint] = ()
    certificates: Certificates | None = None
    drill: bool = False


@dataclass(frozen=True)
class Health:
    """Whether the node can do its work now, and if not, why."""

    healthy: bool
    reason: str | None = None
    age_seconds: float = 0.0


@dataclass(eq=False)
class Presence(ABC):
    """One process of one node."""

    settings: NodeSettings
    counters: Counters = field(default_factory=Counters, kw_only=True)
    epoch: int = field(default_factory=time.time_ns, kw_only=True)
    instance: str = field(default_factory=lambda: secrets.token_hex(16), kw_only=True)
    read_links: Callable[[], Mapping[str, Link]] = field(default=dict, kw_only=True)
    """The best way to each other node as this process found it; whoever exchanges cards for it sets this."""

    def __post_init__(self) -> None:
        self.cards = CardBook(self.card, time.monotonic)
        # Nonces are forgotten with the process, so what was signed before it began is refused.
        nonces = NonceBook(opened_at=time.time())
        unsigned = self.fleet_key is None
        self.gate = RequestGate(tuple(self.settings.keys), self.id, allow_unsigned=unsigned, nonces=nonces)
        self.faults = Faults(allowed=self.settings.drill)
        self.signer = NodeSigner(self.id, self.fleet_key, self.settings.tenant, time.time)
        self.room = Room()  # for all its peers: what one of them no longer fills another may
        self.counters.registry.register(PresenceCollector(self))
        self._told: set[UnreadCard] = set()

    @property
    def id(self) -> NodeId:
        """Its host's name in the inventory."""
        return self.settings.id

    @property
    def role(self) -> Role:
        """What it does for the fleet."""
        return self.settings.role

    @property
    def fleet_key(self) -> Secret | None:
        """The key that it signs with, None in an unsigned fleet."""
        return self.settings.keys[0] if self.settings.keys else None

    @property
    def caller(self) -> Caller:
        """How it presents itself to peers."""
        certificates = self.settings.certificates
        return Caller(self.id, self.epoch, self.instance, self.signer, self.fleet_key, certificates, self.room)

    def learn(self, known: CardsExchange) -> None:
        """Take over what is news in an exchange; what cannot be read of it is counted, and logged once."""
        self.cards.merge(known.cards)
        for card in known.unread:
            self.counters.add(CounterName.CARDS_UNREAD, worker=card.node)
            if card not in self._told and len(self._told) < _MOST_TOLD:
                self._told.add(card)
                _logger.warning("a card cannot be read: %s", card.reason, extra={"peer": card.node})

    @abstractmethod
    def health(self) -> Health:
        """Whether it can do its work; never waits for work that is going on."""

    def card(self) -> Card:
        """What it says about itself now: without a model no identity, so that its KV is nobody's, and no load."""
        health = self.health()
        return Card(
            node=self.id,
            role=self.role,
            epoch=self.epoch,
            instance=self.instance,
            version=__version__,
            endpoints=tuple(self.settings.endpoints),
            identity=None,
            identity_document=None,
            runtime=None,
            load=Load(queued=0, running=0, queue_seconds=0.0),
            prefill_tokens_per_second=None,
            free_memory_bytes=psutil.virtual_memory().available,
            pool=PoolUse(used_bytes=0, budget_bytes=0),
            counters=dict(self.counters.snapshot()),
            issued_at=time.time(),
            ttl_seconds=CARD_SECONDS,
            healthy=health.healthy,
            reason=health.reason,
            memory=NodeMemory(footprint_bytes=read_footprint()),
            links=tuple(_describe(node, link) for node, link in self.read_links().items()),
            wire=WIRE_VERSION,
        )


def _describe(node: str, link: Link) -> CardLink:
    error = None if link.up else (link.last_error or "not answered yet")[:_MOST_ERROR_CHARACTERS]
    return CardLink(node=node, network=link.endpoint.network, error=error)


__all__ = ["CARD_SECONDS", "Health", "NodeSettings", "Presence"]
