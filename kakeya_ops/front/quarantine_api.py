"""``/v1/network/quarantine``: whom the head asks no more and why, and the order that releases a node."""

from __future__ import annotations

import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kakeya_ops.errors import InputError, RefusedError, SignatureRejected
from kakeya_ops.openai_api.bodies import read_json_body
from kakeya_ops.openai_api.errors import ApiError, invalid
from kakeya_ops.openai_api.settings import ApiSettings, authorize
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.quarantine import Quarantine
from kakeya_ops.wire.nonces import NonceBook
from kakeya_ops.wire.releases import RELEASE_PATH, ReleaseOrder

LIST_PATH = "/v1/network/quarantine"


def quarantine_routes(node: Node, quarantine: Quarantine, settings: ApiSettings) -> list[Route]:
    """Routes of the head that runs as `node`; they raise `ApiError` for the app to answer."""
    desk = _Desk(node, quarantine, settings)
    return [
        Route(LIST_PATH, desk.tell, methods=["GET"]),
        Route(RELEASE_PATH, desk.release, methods=["POST"]),
    ]


class _Desk:
    def __init__(self, node: Node, quarantine: Quarantine, settings: ApiSettings) -> None:
        self._node = node
        self._quarantine = quarantine
        self._settings = settings
        # Nonces are forgotten with the process, so what was signed before it began is refused.
        self._nonces = NonceBook(opened_at=time.time())

    async def tell(self, request: Request) -> Response:
        """The nodes that are held, and the last that were released."""
        authorize(request, self._settings)
        state = self._quarantine.state
        told: dict[str, Any] = {"head": self._node.id}
        told |= {"held": [one.to_json() for one in state.held], "released": [one.to_json() for one in state.released]}
        return JSONResponse(told)

    async def release(self, request: Request) -> Response:
        """Let the node that an order names be asked again."""
        authorize(request, self._settings)
        order = await self._read(request)
        freed = await run_in_threadpool(self._carry_out, order)
        return JSONResponse(freed)

    async def _read(self, request: Request) -> ReleaseOrder:
        body = await read_json_body(request, self._settings.limits)
        try:
            return ReleaseOrder.parse(body)
        except InputError as error:
            raise invalid(None, error.message) from None

    def _carry_out(self, order: ReleaseOrder) -> dict[str, Any]:
        try:
            order.verify(self._node.settings.keys, self._nonces, time.time())
            if order.head != self._node.id:
                raise SignatureRejected(f"release rejected: it is for {order.head}, and this is {self._node.id}")
            return self._quarantine.release(order.node, order.reason).to_json()
        except SignatureRejected as error:
            raise ApiError(403, error.message, code="release_rejected") from None
        except RefusedError as error:
            raise ApiError(404, error.message, param="node", code="not_found") from None
        except InputError as error:
            raise invalid("reason", error.message) from None


__all__ = ["LIST_PATH", "quarantine_routes"]
