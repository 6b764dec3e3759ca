"""A node whose model does not fit its host: it stays up without the model, to say so.

launchd would start a server that ends again for ever, and each time there would be nothing to ask. This one answers
``/healthz`` with 503 and the verdict, and its card says the same, so that status shows it and no head uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kakeya_ops import __version__
from kakeya_ops.peer.client import BLOCKS_PATH, CARD_PATH, CARDS_PATH, FETCH_PATH, LOOKUP_PATH, PREFILL_PATH
from kakeya_ops.serving.counters import CONTENT_TYPE
from kakeya_ops.serving.door import Answer, Door, refuse_route, tell_bug, tell_health
from kakeya_ops.serving.presence import CARD_SECONDS, Health, Presence
from kakeya_ops.serving.process_memory import read_footprint
from kakeya_ops.serving.server import Server, Site
from kakeya_ops.serving.startup import Startup
from kakeya_ops.wire.bodies import ErrorBody
from kakeya_ops.wire.cards import Card, CardsExchange, Load, NodeMemory, PoolUse
from kakeya_ops.wire.signing import Caller

CODE = "does_not_fit"
_MOST_CHARACTERS = 1000


@dataclass(eq=False)
class RefusedNode(Presence):
    """Who it would be, and the `reason` why it is not."""

    reason: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reason = self.reason[:_MOST_CHARACTERS]

    def health(self) -> Health:
        """Never well."""
        return Health(False, self.reason)

    def card(self) -> Card:
        """Without an identity, so that its KV is nobody's, and not healthy."""
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
            healthy=False,
            reason=self.reason,
            memory=NodeMemory(footprint_bytes=read_footprint()),
        )


def serve_refused(startup: Startup, reason: str, tell: Callable[[str], None], more: Sequence[Site] = ()) -> None:
    """Serve the node without its model until it is told to stop; `more` are sites besides that of the peers."""
    node = RefusedNode(startup.settings, reason)
    sites = [Site("peers", make_refused_app(node), startup.sockets), *more]
    Server([site for site in sites if site.sockets]).run(
        lambda: tell(f"{node.role} {node.id} is up at {startup.addresses} WITHOUT its model: {node.reason}")
    )


def make_refused_app(node: RefusedNode) -> Starlette:
    """The app that answers the peers of `node`."""
    app, door = _RefusedApp(node), Door(node)
    return Starlette(
        routes=[
            Route("/healthz", app.health, methods=["GET"]),
            Route("/metrics", app.metrics, methods=["GET"]),
            Route(CARD_PATH, door.small(app.card), methods=["GET"]),
            Route(CARDS_PATH, door.small(app.exchange, CardsExchange.limit_bytes), methods=["POST"]),
            *(Route(path, app.refuse, methods=["POST"]) for path in (LOOKUP_PATH, FETCH_PATH, PREFILL_PATH)),
            Route(BLOCKS_PATH, app.refuse, methods=["PUT"]),
        ],
        exception_handlers={HTTPException: refuse_route, Exception: tell_bug},
    )


class _RefusedApp:
    def __init__(self, node: RefusedNode) -> None:
        self._node = node
        self._door = Door(node)

    async def health(self, request: Request) -> Response:
        return tell_health(self._node)

    async def metrics(self, request: Request) -> Response:
        return Response(self._node.counters.render(), media_type=CONTENT_TYPE)

    async def card(self, caller: Caller, body: bytes) -> Answer:
        return self._door.reply(caller, self._node.card().encode())

    async def exchange(self, caller: Caller, body: bytes) -> Answer:
        self._node.cards.merge(CardsExchange.parse(body).cards)
        known = tuple(self._node.cards.fresh().values())
        return self._door.reply(caller, CardsExchange(cards=known).encode())

    async def refuse(self, request: Request) -> Response:
        """Open to all, as health is, which says the same."""
        body = ErrorBody(code=CODE, message=self._node.reason).encode()
        return Response(body, 503, {"Connection": "close"}, media_type="application/json")


__all__ = ["CODE", "RefusedNode", "make_refused_app", "serve_refused"]
