"""The way into a node for its peers: bodies bounded, callers verified, replies signed, errors by the one table."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_ops.errors import InputError, KakeyaError
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.presence import Presence
from kakeya_ops.wire.bodies import ErrorBody
from kakeya_ops.wire.signing import (
    REPLY_HEADER,
    Caller,
    SignedRequest,
    sign_reply,
    verify_body,
    verify_request,
)
from kakeya_ops.wire.statuses import describe_error
from kakeya_ops.wire.version import wire_headers

BODY_SECONDS = 30.0
"""How long the body of a small request may take to arrive."""

_DISCARD_BYTES = 1024 * 1024
_DISCARD_SECONDS = 2.0

Answer = Response | ASGIApp
Handler = Callable[[Caller, bytes], Awaitable[Answer]]
StreamHandler = Callable[[Caller, Request], Awaitable[Answer]]
Endpoint = Callable[[Request], Awaitable[Answer]]


class Door:
    """Makes endpoints that let in only what this node's gate admits."""

    def __init__(self, node: Presence) -> None:
        self._node = node

    def small(self, handle: Handler, limit_bytes: int = 0) -> Endpoint:
        """An endpoint whose body, of at most `limit_bytes`, is read whole, once the caller is verified."""

        async def endpoint(request: Request) -> Answer:
            caller = None
            try:
                caller = self._verify(request, streamed=False)
                body = await _read_body(request, limit_bytes)
                verify_body(request.headers, body)
                return await handle(caller, body)
            except KakeyaError as error:
                return _LastWord(request, self.refuse(error, caller))
            except ClientDisconnect:
                return Response(status_code=400)

        return endpoint

    def streamed(self, handle: StreamHandler) -> Endpoint:
        """An endpoint whose body is a stream of frames, which `handle` reads itself."""

        async def endpoint(request: Request) -> Answer:
            caller = None
            try:
                caller = self._verify(request, streamed=True)
                return await handle(caller, request)
            except KakeyaError as error:
                return _LastWord(request, self.refuse(error, caller))
            except ClientDisconnect:
                return Response(status_code=400)

        return endpoint

    def reply(self, caller: Caller, body: bytes, status: int = 200) -> Response:
        """A signed reply of JSON."""
        response = Response(body, status, media_type="application/json")
        if caller.key is not None:
            response.headers[REPLY_HEADER] = sign_reply(caller.key, caller.nonce, status, body)
        return response

    def refuse(self, error: KakeyaError, caller: Caller | None) -> Response:
        """The counted reply to what cannot be granted; signed only where it is known who asks."""
        status, body = describe_error(error)
        self._node.counters.add(CounterName.REQUESTS_REFUSED, reason=body.code)
        response = self.reply(caller, body.encode(), status) if caller else _unsigned(status, body)
        if body.retry_after_seconds is not None:
            response.headers["Retry-After"] = str(max(round(body.retry_after_seconds), 1))
        response.headers["Connection"] = "close"  # whatever is left of the request is not wanted
        return response

    def _verify(self, request: Request, *, streamed: bool) -> Caller:
        signed = SignedRequest(request.headers, request.method, _target(request), streamed)
        return verify_request(signed, self._node.gate, time.time())


class TellingVersion:
    """An app of which every reply tells the wire version that it is of."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in wire_headers().items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        await self._app(scope, receive, tell)


def tell_health(node: Presence) -> Response:
    """The answer of ``/healthz``, open to all; 503 with the reason when the node cannot do its work."""
    health = node.health()
    body = {
        "status": "ok" if health.healthy else "failing",
        "node": node.id,
        "role": node.role,
        "reason": health.reason,
        "age_seconds": round(health.age_seconds, 3),
    }
    return JSONResponse(body, 200 if health.healthy else 503)


async def refuse_route(request: Request, error: Exception) -> Response:
    """The answer to a path or method that does not exist."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    return _unsigned(status, ErrorBody(code="invalid_request", message=f"no {request.method} here"))


async def tell_bug(request: Request, error: Exception) -> Response:
    """The answer when this node itself fails; what failed is in its own log only."""
    return _unsigned(
        500, ErrorBody(code="internal", message="the node failed in a way it should not; its log says how")
    )


def _unsigned(status: int, body: ErrorBody) -> Response:
    return Response(body.encode(), status, media_type="application/json")


def _target(request: Request) -> str:
    """The target of the request line, as it was signed."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


class _LastWord:
    """Answers at once and then lets go by, within bounds, what is still coming of the body.

    To hang up on it would reset the connection, and the answer could be lost with that.
    """

    def __init__(self, request: Request, answer: Response) -> None:
        self._request = request
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def keep_open(message: Message) -> None:
            await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

        await self._answer(scope, receive, keep_open)
        await _discard_body(self._request)
        await send({"type": "http.response.body", "body": b""})


async def _discard_body(request: Request) -> None:
    left = _DISCARD_BYTES
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError):  # the last: nothing is left to read
        async with asyncio.timeout(_DISCARD_SECONDS):
            async for chunk in request.stream():
                left -= len(chunk)
                if left < 0:
                    return


async def _read_body(request: Request, limit_bytes: int) -> bytes:
    """The body, if it is no longer than `limit_bytes`; it is not read further than that."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or len(announced) > 12 or int(announced) > limit_bytes:
        raise InputError(f"the body is larger than {limit_bytes} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit_bytes:
                    raise InputError(f"the body is larger than {limit_bytes} bytes")
    except TimeoutError:
        raise InputError(f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
    return bytes(body)


__all__ = [
    "BODY_SECONDS",
    "Answer",
    "Door",
    "Endpoint",
    "Handler",
    "StreamHandler",
    "TellingVersion",
    "refuse_route",
    "tell_bug",
    "tell_health",
]
