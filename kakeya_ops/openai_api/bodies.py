"""Reads a request's body within its bounds, before anything looks into it."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.settings import ApiLimits


async def read_json_body(request: Request, limits: ApiLimits) -> bytes:
    """The body of `request`, which claims to be JSON.

    Raises `ApiError`: 415 for another content type or a compressed body, 413 beyond `limits.body_bytes` (chunked
    bodies included), 408 if it is not complete after `limits.body_seconds`.
    """
    _check_content_type(request)
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body_bytes:
        raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _collect(request, limits)
    except TimeoutError:
        message = f"the body did not arrive within {limits.body_seconds:g} s"
        raise ApiError(408, message, code="request_timeout", headers={"Connection": "close"}) from None


async def _collect(request: Request, limits: ApiLimits) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.body_bytes:
            raise _too_large(limits)
    return bytes(body)


def _check_content_type(request: Request) -> None:
    """Only JSON passes: of the types that a foreign web page can send without asking, this is none."""
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.partition("charset=")[2].strip(' "')
    encoding = request.headers.get("content-encoding", "identity").lower()
    if kind.strip() != "application/json" or charset not in ("", "utf-8", "utf8") or encoding != "identity":
        message = "send plain JSON in UTF-8, with the header Content-Type: application/json"
        raise ApiError(415, message, param="Content-Type", code="unsupported_media_type")


def _too_large(limits: ApiLimits) -> ApiError:
    return ApiError(413, f"the body is larger than {limits.body_bytes} bytes", code="request_too_large")


__all__ = ["read_json_body"]
