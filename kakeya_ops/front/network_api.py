"""``/v1/network`` and ``/metrics``: the fleet's state, the requests and their receipts, for whoever has an API key."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kakeya_ops.front.events import EventFeed, TooManyListeners
from kakeya_ops.front.observatory import Observatory
from kakeya_ops.front.openapi import openapi_route
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.settings import ApiSettings, authorize
from kakeya_ops.serving.counters import CONTENT_TYPE


def network_routes(observatory: Observatory, settings: ApiSettings) -> list[Route]:
    """Routes to be mounted beside the OpenAI API; they raise `ApiError` for the app to answer."""
    api = _Network(observatory, settings)
    return [
        Route("/v1/network/summary", api.summary, methods=["GET"]),
        Route("/v1/network/nodes", api.nodes, methods=["GET"]),
        Route("/v1/network/prefill", api.prefill, methods=["GET"]),
        Route("/v1/network/tokens", api.tokens, methods=["GET"]),
        Route("/v1/network/topology", api.topology, methods=["GET"]),
        Route("/v1/network/series", api.series, methods=["GET"]),
        Route("/v1/network/events", api.events, methods=["GET"]),
        Route("/v1/network/receipts/{request_id}", api.receipt, methods=["GET"]),
        Route("/metrics", api.metrics, methods=["GET"]),
        openapi_route(),
    ]


class _Network:
    def __init__(self, observatory: Observatory, settings: ApiSettings) -> None:
        self._observatory = observatory
        self._settings = settings

    async def summary(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse(self._observatory.summary())

    async def nodes(self, request: Request) -> Response:
        return JSONResponse(self._observatory.nodes(authorize(request, self._settings)))

    async def prefill(self, request: Request) -> Response:
        tenant = authorize(request, self._settings)
        requests, live = self._observatory.requests(tenant), self._observatory.live(tenant)
        return JSONResponse({"requests": requests, "live": live})

    async def tokens(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse(self._observatory.tokens())

    async def topology(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse(self._observatory.topology())

    async def series(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse(await run_in_threadpool(self._observatory.series))

    async def events(self, request: Request) -> Response:
        tenant = authorize(request, self._settings)
        first = await run_in_threadpool(self._observatory.snapshot, tenant)
        try:
            return EventFeed(self._observatory.broadcast, self._observatory.listen(tenant, first))
        except TooManyListeners:
            raise ApiError(503, "there are too many listeners", code="busy", headers={"Retry-After": "10"}) from None

    async def receipt(self, request: Request) -> Response:
        tenant = authorize(request, self._settings)
        receipt = self._observatory.receipt(tenant, request.path_params["request_id"])
        if receipt is None:
            raise ApiError(404, "no receipt of that request is kept here", param="request_id", code="not_found")
        return JSONResponse(receipt.to_json() | {"digest": receipt.digest})

    async def metrics(self, request: Request) -> Response:
        authorize(request, self._settings)
        return Response(await run_in_threadpool(self._observatory.metrics), media_type=CONTENT_TYPE)


__all__ = ["network_routes"]
