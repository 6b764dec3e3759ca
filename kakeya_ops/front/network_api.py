"""``/v1/network`` and ``/metrics``: the fleet's state, the requests and their receipts, for whoever has an API key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kakeya_ops.front.events import EventFeed, TooManyListeners
from kakeya_ops.front.observatory import Observatory
from kakeya_ops.front.openapi import openapi_route
from kakeya_ops.front.quarantine_api import quarantine_routes
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.settings import ApiSettings, authorize
from kakeya_ops.serving.counters import CONTENT_TYPE

Tell = Callable[[str], dict[str, Any]]
"""What is to be said to a tenant."""


def network_routes(observatory: Observatory, settings: ApiSettings) -> list[Route]:
    """Routes to be mounted beside the OpenAI API; they raise `ApiError` for the app to answer."""
    api = _Network(observatory, settings)

    def values(name: str, tell: Tell) -> Route:
        async def endpoint(request: Request) -> Response:
            return await api.values(request, tell)

        return Route(f"/v1/network/{name}", endpoint, methods=["GET"])

    return [
        values("summary", lambda tenant: observatory.summary()),
        values("nodes", observatory.nodes),
        values("prefill", lambda tenant: {"requests": observatory.requests(tenant), "live": observatory.live(tenant)}),
        values("tokens", lambda tenant: observatory.tokens()),
        values("topology", lambda tenant: observatory.topology()),
        values("estimates", lambda tenant: observatory.estimates()),
        values("series", lambda tenant: observatory.series()),
        Route("/v1/network/events", api.events, methods=["GET"]),
        Route("/v1/network/receipts/{request_id}", api.receipt, methods=["GET"]),
        Route("/metrics", api.metrics, methods=["GET"]),
        *quarantine_routes(observatory.node, observatory.quarantine, settings),
        openapi_route(),
    ]


class _Network:
    """Nothing that it tells is read or rendered on the event loop."""

    def __init__(self, observatory: Observatory, settings: ApiSettings) -> None:
        self._observatory = observatory
        self._settings = settings

    async def values(self, request: Request, tell: Tell) -> Response:
        """What `tell` says to the tenant that asks."""
        tenant = authorize(request, self._settings)
        return await run_in_threadpool(lambda: JSONResponse(tell(tenant)))

    async def receipt(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        return await self.values(request, lambda tenant: self._receipt(tenant, request_id))

    async def events(self, request: Request) -> Response:
        tenant = authorize(request, self._settings)
        first = await run_in_threadpool(self._observatory.snapshot, tenant)
        try:
            return EventFeed(self._observatory.broadcast, self._observatory.listen(tenant, first))
        except TooManyListeners:
            raise ApiError(503, "there are too many listeners", code="busy", headers={"Retry-After": "10"}) from None

    async def metrics(self, request: Request) -> Response:
        authorize(request, self._settings)
        return Response(await run_in_threadpool(self._observatory.metrics), media_type=CONTENT_TYPE)

    def _receipt(self, tenant: str, request_id: str) -> dict[str, Any]:
        receipt = self._observatory.receipt(tenant, request_id)
        if receipt is None:
            raise ApiError(404, "no receipt of that request is kept here", param="request_id", code="not_found")
        return receipt.to_json() | {"digest": receipt.digest}


__all__ = ["network_routes"]
