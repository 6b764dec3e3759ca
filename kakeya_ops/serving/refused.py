"""A node whose model does not fit its host: it stays up without the model, to say so.

launchd would start a server that ends again for ever, and each time there would be nothing to ask. This one answers
``/healthz`` with 503 and the verdict, and its card says the same, so that status shows it and no head uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kakeya_ops.peer.client import BLOCKS_PATH, FETCH_PATH, LOOKUP_PATH, PREFILL_PATH
from kakeya_ops.serving.door import Door
from kakeya_ops.serving.peer_app import make_node_app
from kakeya_ops.serving.presence import Health, Presence
from kakeya_ops.serving.server import Server, Site
from kakeya_ops.serving.startup import Startup
from kakeya_ops.wire.bodies import ErrorBody

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


def serve_refused(startup: Startup, reason: str, tell: Callable[[str], None], more: Sequence[Site] = ()) -> None:
    """Serve the node without its model until it is told to stop; `more` are sites besides that of the peers."""
    node = RefusedNode(startup.settings, reason)
    sites = [*startup.peer_sites(make_refused_app(node), node.counters), *more]
    Server([site for site in sites if site.sockets]).run(
        lambda: tell(f"{node.role} {node.id} is up at {startup.addresses} WITHOUT its model: {node.reason}")
    )


def make_refused_app(node: RefusedNode) -> Starlette:
    """The app that answers the peers of `node`."""

    async def refuse(request: Request) -> Response:
        """Open to all, as health is, which says the same."""
        body = ErrorBody(code=CODE, message=node.reason).encode()
        return Response(body, 503, {"Connection": "close"}, media_type="application/json")

    methods = {LOOKUP_PATH: "POST", FETCH_PATH: "POST", PREFILL_PATH: "POST", BLOCKS_PATH: "PUT"}
    return make_node_app(node, Door(node), [Route(path, refuse, methods=[name]) for path, name in methods.items()])


__all__ = ["CODE", "RefusedNode", "make_refused_app", "serve_refused"]
