"""What a node says of itself, asked on its own host over its real endpoints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_ops.errors import PeerError
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.http import (
    HttpRequest,
    base_url,
    health_request,
    read_health,
    read_reply,
    read_status,
    signed_request,
)
from kakeya_ops.observe.state import Fact, Health, Unknown
from kakeya_ops.probes import Finding
from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import Card
from kakeya_ops.wire.paths import CARD_PATH
from kakeya_ops.wire.signing import NodeSigner

ASKER = NodeId("kakeya-deploy")
"""The name that requests from the operator are signed with."""


@dataclass(frozen=True)
class Asker:
    """In whose name nodes are asked: the fleet's key (None in a fleet without one) and its tenant."""

    key: Secret | None
    tenant: str
    node: NodeId = ASKER

    @property
    def signer(self) -> NodeSigner:
        """A signer by this machine's clock."""
        return NodeSigner(self.node, self.key, self.tenant, time.time)

    def card_request(self, node: str, endpoint: Endpoint) -> HttpRequest:
        """Ask the node for its card."""
        return signed_request(self.signer, self.key, node, endpoint, (CARD_PATH, None))


@dataclass(frozen=True)
class NodeFacts:
    """What a node says of itself: `health` is None when nothing answers."""

    health: Fact[Health | None]
    card: Fact[Card]


def usable_endpoints(host: ResolvedHost) -> list[Endpoint]:
    """The endpoints that the host serves: those in clear before those that want a certificate, then the preferred."""
    return sorted(host.endpoints, key=lambda end: (not end.in_clear, -end.priority))


def node_requests(host: ResolvedHost, asker: Asker) -> dict[str, HttpRequest]:
    """The requests that show health and card of the node on `host`, by name of the probe."""
    requests: dict[str, HttpRequest] = {}
    every = usable_endpoints(host)
    # A host can say nothing more by TLS than in clear.
    endpoints = [end for end in every if end.in_clear] or every
    for number, endpoint in enumerate(endpoints):
        requests[f"health_{number}"] = health_request(host.name, endpoint)
        requests[f"card_{number}"] = asker.card_request(host.name, endpoint)
    if not endpoints and host.api is not None:
        requests["health_api"] = HttpRequest(host.name, f"{base_url(host.api.bind, host.api.port)}/healthz")
    return requests


def read_node(requests: Mapping[str, HttpRequest], findings: Mapping[str, Finding]) -> NodeFacts:
    """Health and card of the node, each by the first endpoint at which it is to be had."""
    health: Fact[Health | None] = None
    card: Fact[Card] = Unknown("the node has no endpoint for peers")
    for name, request in requests.items():
        finding = findings.get(name)
        if finding is None:
            return NodeFacts(unfinished := Unknown("the host did not end its report"), unfinished)
        if name.startswith("card"):
            card = card if isinstance(card, Card) else _read_card(request, finding)
        elif health is None:
            health = _read_health(name, request, finding)
    return NodeFacts(health, card)


def _read_health(name: str, request: HttpRequest, finding: Finding) -> Fact[Health | None]:
    if finding.status == 127:
        return Unknown("the host has no curl")
    if finding.status != 0:
        return None
    try:
        if name == "health_api":  # the API's answer does not name the node
            return Health(read_status(request, finding.status, finding.output) == 200)
        return read_health(request, finding.status, finding.output)
    except PeerError as error:
        return Health(False, error.message)


def _read_card(request: HttpRequest, finding: Finding) -> Fact[Card]:
    try:
        return read_reply(request, Card, finding.status, finding.output)
    except PeerError as error:
        return Unknown(error.message)


__all__ = ["ASKER", "Asker", "NodeFacts", "node_requests", "read_node", "usable_endpoints"]
