"""``/v1/network``: the fleet's state and the receipts, for whoever has an API key."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kakeya_ops.front.network import describe_node, describe_request, describe_summary, describe_tokens
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.settings import ApiSettings, authorize
from kakeya_ops.serving.card_book import DuplicateNode
from kakeya_ops.serving.counters import CONTENT_TYPE
from kakeya_ops.serving.fleet import Fleet
from kakeya_ops.serving.head import HeadService

_LISTED = 50


def network_routes(head: HeadService, fleet: Fleet, settings: ApiSettings) -> list[Route]:
    """Routes to be mounted beside the OpenAI API; they raise `ApiError` for the app to answer."""
    api = _Network(head, fleet, settings)
    return [
        Route("/v1/network/summary", api.summary, methods=["GET"]),
        Route("/v1/network/nodes", api.nodes, methods=["GET"]),
        Route("/v1/network/prefill", api.prefill, methods=["GET"]),
        Route("/v1/network/tokens", api.tokens, methods=["GET"]),
        Route("/v1/network/receipts/{request_id}", api.receipt, methods=["GET"]),
        Route("/metrics", api.metrics, methods=["GET"]),
    ]


class _Network:
    def __init__(self, head: HeadService, fleet: Fleet, settings: ApiSettings) -> None:
        self._head = head
        self._fleet = fleet
        self._node = head.node
        self._settings = settings

    async def summary(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse(describe_summary(self._node.counters, self._fleet.known()))

    async def nodes(self, request: Request) -> Response:
        tenant = authorize(request, self._settings)
        nodes = [describe_node(known) for known in self._fleet.known()]
        return JSONResponse({"head": self._describe_head(tenant), "nodes": nodes, "conflicts": self._conflicts()})

    async def prefill(self, request: Request) -> Response:
        authorize(request, self._settings)
        receipts = self._head.ledger.receipts.last(_LISTED)
        return JSONResponse({"requests": [describe_request(receipt) for receipt in receipts]})

    async def tokens(self, request: Request) -> Response:
        authorize(request, self._settings)
        return JSONResponse(describe_tokens(self._node.counters))

    async def receipt(self, request: Request) -> Response:
        authorize(request, self._settings)
        receipt = self._head.ledger.receipts.get(request.path_params["request_id"])
        if receipt is None:
            raise ApiError(404, "no receipt of that request is kept here", param="request_id", code="not_found")
        return JSONResponse(receipt.to_json() | {"digest": receipt.digest})

    async def metrics(self, request: Request) -> Response:
        authorize(request, self._settings)
        return Response(self._node.counters.render(), media_type=CONTENT_TYPE)

    def _describe_head(self, tenant: str) -> dict[str, Any]:
        """The head to whoever asks; `tenant` is the one that the asker's requests are answered for."""
        cache = self._head.cache
        return {
            "node": self._node.id,
            "epoch": self._node.epoch,
            "instance": self._node.instance,
            "model": self._head.model_id,
            "identity": self._head.identity.digest,
            "identity_document": self._head.identity.to_json(),
            "tenant": tenant,
            "block_tokens": cache.block_tokens,
            "sink": cache.sink,
            "window": cache.window,
            "prefill_tokens_per_second": self._head.prefill_tokens_per_second,
            "policy": self._head.settings.policy,
            "runtime": self._head.runtime.to_json(),
        }

    def _conflicts(self) -> list[str]:
        return [DuplicateNode(conflict).message for conflict in self._node.cards.conflicts()]


__all__ = ["network_routes"]
