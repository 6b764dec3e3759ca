"""How a drill reaches the nodes that it tries: over their peer ports, as a node of its own with the fleet's key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kakeya_ops.certificates import Certificates
from kakeya_ops.errors import PeerError, PeerTimeout, PeerUnreachable
from kakeya_ops.peer.connection import Endpoint, StopFlag, Timeouts
from kakeya_ops.peer.signed import Caller, SignedCalls
from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.cards import Card, CardsExchange
from kakeya_ops.wire.drills import DrillRequest, DrillState, Fault
from kakeya_ops.wire.paths import CARD_PATH, CARDS_PATH, DRILL_PATH
from kakeya_ops.wire.signing import NodeSigner, new_nonce

NAME = NodeId("drill")
_TIMEOUTS = Timeouts(connect_seconds=2.0, reply_seconds=5.0, silence_seconds=5.0)
R = TypeVar("R", bound=WireBody)


@dataclass(frozen=True)
class Operator:
    """Whoever drills: the fleet's newest key, its tenant, and what TLS wants where that is spoken."""

    key: Secret
    tenant: str
    certificates: Certificates | None = None

    def caller(self) -> Caller:
        """How the drill presents itself."""
        signer = NodeSigner(NAME, self.key, self.tenant, time.time)
        return Caller(NAME, time.time_ns(), new_nonce(), signer, self.key, self.certificates)


class NodeDoor:
    """The way to one node, over the first of its `endpoints` that works. Every method raises `PeerError`."""

    def __init__(self, node: str, endpoints: Sequence[Endpoint], operator: Operator) -> None:
        self.node = node
        caller = operator.caller()
        self._ways = [SignedCalls(NodeId(node), endpoint, caller, _TIMEOUTS) for endpoint in endpoints]

    def arm(self, fault: Fault) -> DrillState:
        """Have `fault` armed. Raises `PeerRefused` where that is not allowed."""
        return self._ask("POST", DRILL_PATH, DrillRequest(fault=fault).encode(), DrillState)

    def disarm(self) -> DrillState:
        """Have nothing armed any more; how many requests met what was."""
        return self._ask("POST", DRILL_PATH, DrillRequest(fault=None).encode(), DrillState)

    def card(self) -> Card:
        """The node's own card."""
        return self._ask("GET", CARD_PATH, b"", Card)

    def tell(self, cards: Sequence[Card]) -> None:
        """Tell the node of `cards`."""
        self._ask("POST", CARDS_PATH, CardsExchange(cards=tuple(cards)).encode(), CardsExchange)

    def close(self) -> None:
        """Close the connections."""
        for way in self._ways:
            way.close()

    def _ask(self, method: str, path: str, body: bytes, kind: type[R]) -> R:
        last: PeerError = PeerUnreachable(self.node, "has no endpoint that may be used from here")
        for way in list(self._ways):
            try:
                return way.ask(method, path, body, kind, StopFlag())
            except (PeerUnreachable, PeerTimeout) as error:
                last = error
        raise last


__all__ = ["NAME", "NodeDoor", "Operator"]
