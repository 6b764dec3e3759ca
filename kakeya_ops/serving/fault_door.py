"""Where a drill's faults happen: around a node's app, which knows nothing of them. It stands only where drills may be.

Only requests that the fleet's key has signed, head and body, meet a fault; all others, and all of them while nothing is
armed, go by.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_ops.errors import KakeyaError
from kakeya_ops.serving.door import BODY_SECONDS
from kakeya_ops.serving.fault_meeting import Meeting, Visit, as_signed
from kakeya_ops.serving.node import Node
from kakeya_ops.wire.bodies import FetchRequest
from kakeya_ops.wire.drills import On
from kakeya_ops.wire.paths import FETCH_PATH, LOOKUP_PATH, PREFILL_PATH
from kakeya_ops.wire.signing import Caller, NonceBook, RequestGate, verify_body, verify_request

_PATHS: dict[str, On] = {LOOKUP_PATH: "lookup", FETCH_PATH: "fetch", PREFILL_PATH: "prefill"}
_MOST_BYTES = FetchRequest.limit_bytes


class FaultDoor:
    """Middleware of `node`'s app."""

    def __init__(self, app: ASGIApp, node: Node) -> None:
        self._app = app
        self._node = node
        # A book of its own: the app is to find each nonce unused, and to judge what is stale.
        nonces = NonceBook()
        unsigned = node.fleet_key is None
        self._gate = RequestGate(tuple(node.settings.keys), node.id, allow_unsigned=unsigned, nonces=nonces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or let it meet what is armed."""
        faults = self._node.faults
        on = _PATHS.get(scope.get("path", ""))
        if faults.armed is None or on is None or (caller := self._verify(scope)) is None:
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        receive = _again(body, receive)
        document = _parse(body) if _signed(scope, body) else None
        fault = None if document is None else faults.take(on, document.get("nonce"))
        if document is None or fault is None:
            await self._app(scope, receive, send)
            return
        await Meeting(self._node, fault, Visit(self._app, scope, receive, send, caller), document).happen()

    def _verify(self, scope: Scope) -> Caller | None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if not length.isdecimal() or len(length) > 12 or int(length) > _MOST_BYTES:
            return None
        try:
            return verify_request(as_signed(scope), self._gate, time.time())
        except KakeyaError:
            return None


async def _read(receive: Receive) -> bytes:
    """The whole body; what comes too late, or not at all, is missing."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while (message := await receive())["type"] == "http.request":
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
    except TimeoutError:
        pass
    return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """What gives `body` once more, and then whatever comes after it."""
    given = False

    async def read() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


def _signed(scope: Scope, body: bytes) -> bool:
    """Whether `body` is the one that was signed: else it is for the app to refuse, and nothing in it is believed."""
    try:
        verify_body(Headers(scope=scope), body)
    except KakeyaError:
        return False
    return True


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


__all__ = ["FaultDoor"]
