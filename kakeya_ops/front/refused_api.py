"""The API of a head that is up without its model: every answer is 503 and says why."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.serving.refused import CODE

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def make_refused_api(reason: str) -> Starlette:
    """The app; `reason` is the verdict in words."""

    async def refuse(request: Request) -> Response:
        return ApiError(503, f"this head is up without its model: {reason}", code=CODE).response()

    return Starlette(routes=[Route("/{path:path}", refuse, methods=_METHODS)])


__all__ = ["make_refused_api"]
