"""Where a drill's faults happen: around a node's app, which knows nothing of them. It stands only where drills may be.

Only requests that the fleet's key has signed meet a fault; all others, and all of them while nothing is armed, go by.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_ops.errors import EngineBusy, IdentityMismatch, KakeyaError, PoolFull
from kakeya_ops.serving.door import BODY_SECONDS, Door
from kakeya_ops.serving.fault_stream import STRANGER, Die, Freeze, HangUp, SentFrame, Spoiler, Step, Wait
from kakeya_ops.serving.faults import end_process
from kakeya_ops.serving.http_protocol import HANG_UP
from kakeya_ops.serving.node import Node
from kakeya_ops.wire.bodies import FetchRequest, LookupReply
from kakeya_ops.wire.drills import ON_STREAMS, Act, Fault, On
from kakeya_ops.wire.frames import HEAD_BYTES, FrameHead, FrameReader, stream_key
from kakeya_ops.wire.paths import FETCH_PATH, LOOKUP_PATH, PREFILL_PATH
from kakeya_ops.wire.signing import (
    REPLY_HEADER,
    Caller,
    NodeSigner,
    NonceBook,
    RequestGate,
    SignedRequest,
    verify_request,
)
from kakeya_ops.wire.statuses import describe_error

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
        document = _parse(body)
        fault = faults.take(on, document.get("nonce"))
        if fault is None:
            await self._app(scope, receive, send)
            return
        visit = Visit(self._app, scope, receive, send, caller)
        await Meeting(self._node, fault, visit, body, document).happen()

    def _verify(self, scope: Scope) -> Caller | None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        if not length.isdecimal() or len(length) > 12 or int(length) > _MOST_BYTES:
            return None
        try:
            return verify_request(SignedRequest(headers, scope["method"], _target(scope)), self._gate, time.time())
        except KakeyaError:
            return None


@dataclass(frozen=True)
class Visit:
    """A verified request on its way to `app`."""

    app: ASGIApp
    scope: Scope
    receive: Receive
    send: Send
    caller: Caller

    def hang_up(self) -> None:
        """Break the connection, where the server lets an app do that."""
        self.scope.get("extensions", {}).get(HANG_UP, {}).get("hang_up", lambda: None)()


class Meeting:
    """One request and the fault that it meets."""

    def __init__(self, node: Node, fault: Fault, visit: Visit, body: bytes, document: dict[str, Any]) -> None:
        self._node = node
        self._fault = fault
        self._visit = visit
        self._body = body
        self._document = document

    async def happen(self) -> None:
        """Answer the request as the fault has it."""
        if self._fault.act in ON_STREAMS:
            spoilt = SpoiltStream(self._visit, self._reader(), self._spoiler())
            await self._go_on(send=spoilt)
        else:
            await _HAPPENINGS[self._fault.act](self)

    async def delay(self) -> None:
        """Answer late."""
        await asyncio.sleep(self._fault.seconds)
        await self._go_on()

    async def silence(self) -> None:
        """Never answer."""
        await asyncio.sleep(self._fault.seconds)
        await self.hang_up()

    async def hang_up(self) -> None:
        """Break the connection, and be there until the server knows."""
        self._visit.hang_up()
        while (await self._visit.receive())["type"] != "http.disconnect":
            pass

    async def exit(self) -> None:
        """End the process."""
        end_process()

    async def busy(self) -> None:
        """Say that the queue is full."""
        await self._refuse(EngineBusy(5.0))

    async def pool_full(self) -> None:
        """Say that the pool has no room."""
        await self._refuse(PoolFull(1, 0))

    async def other_identity(self) -> None:
        """Say that this node has another cache identity by now."""
        await self._refuse(IdentityMismatch("weights", "those of a drill", "yours", peer=self._visit.caller.node))

    async def nonsense(self) -> None:
        """Answer as something else that happens to listen at this port."""
        start = {"type": "http.response.start", "status": 500, "headers": [(b"content-type", b"text/html")]}
        await self._visit.send(start)
        await self._visit.send({"type": "http.response.body", "body": b"<html>It works!</html>"})

    async def wrong_key(self) -> None:
        """Take the request as one that was signed with another fleet's key."""
        caller = self._visit.caller
        await self._go_on(self._signed(NodeSigner(caller.node, STRANGER, caller.tenant, time.time)))

    async def skewed_clock(self) -> None:
        """Take the request as one from a node whose clock is off."""
        caller = self._visit.caller
        signer = NodeSigner(caller.node, caller.key, caller.tenant, lambda: time.time() - self._fault.seconds)
        await self._go_on(self._signed(signer))

    async def replay(self) -> None:
        """Take the request as one that was here before."""
        scope = self._visit.scope
        signed = SignedRequest(Headers(scope=scope), scope["method"], _target(scope))
        with suppress(KakeyaError):  # it is the next look at it that is to refuse
            verify_request(signed, self._node.gate, time.time())
        await self._go_on()

    async def forged_reply(self) -> None:
        """Answer truly, but as one without the fleet's key would."""

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                name = REPLY_HEADER.lower().encode()
                kept = [pair for pair in message["headers"] if pair[0] != name]
                message = {**message, "headers": [*kept, (name, b"0" * 64)]}
            await self._visit.send(message)

        await self._go_on(send=send)

    async def promise(self) -> None:
        """Say that all is held which is asked for."""
        await self._claim(len(self._document["hashes"]))

    async def boast(self) -> None:
        """Say that more is held than is asked for."""
        await self._claim(len(self._document["hashes"]) + 1)

    async def _claim(self, blocks: int) -> None:
        reply = LookupReply(resume_blocks=blocks, parts_held=blocks)
        await self._answer(200, reply.encode())

    async def _refuse(self, error: KakeyaError) -> None:
        status, body = describe_error(error)
        await self._answer(status, body.encode())

    async def _answer(self, status: int, body: bytes) -> None:
        visit = self._visit
        await Door(self._node).reply(visit.caller, body, status)(visit.scope, visit.receive, visit.send)

    async def _go_on(self, scope: Scope | None = None, send: Send | None = None) -> None:
        visit = self._visit
        await visit.app(scope or visit.scope, visit.receive, send or visit.send)

    def _signed(self, signer: NodeSigner) -> Scope:
        scope = self._visit.scope
        signed = signer.sign(scope["method"], _target(scope), self._body, to=self._node.id)
        own = {name.lower().encode(): value.encode() for name, value in signed.items()}
        others = [pair for pair in scope["headers"] if pair[0] not in own]
        return {**scope, "headers": [*others, *own.items()]}

    def _reader(self) -> FrameReader:
        caller = self._visit.caller
        return FrameReader(stream_key(caller.key, "down", caller.nonce), self._node.identity.layout)

    def _spoiler(self) -> Spoiler:
        caller = self._visit.caller
        return Spoiler(self._fault, self._blocks(), stream_key(caller.key, "down", caller.nonce), caller.key)

    def _blocks(self) -> int:
        """How many block frames the answer has, if it is whole."""
        if self._fault.on == "fetch":
            return len(self._document.get("blocks", ()))
        first, blocks = int(self._document.get("from_blocks", 0)), int(self._document.get("blocks", 0))
        return sum(block >= first for block, _ in self._node.identity.layout.needed(blocks))


class SpoiltStream:
    """Takes the place of the server's `send`: takes a stream apart into frames, and sends what the spoiler makes."""

    def __init__(self, visit: Visit, reader: FrameReader, spoiler: Spoiler) -> None:
        self._visit = visit
        self._reader = reader
        self._spoiler = spoiler
        self._rest = b""
        self._head: tuple[FrameHead, bytes] | None = None
        self._spoils = False
        self._gone = False

    async def __call__(self, message: Message) -> None:
        """Send `message`, spoilt."""
        if message["type"] == "http.response.start":
            self._spoils = message["status"] == 200
            length = b"content-length" if self._spoils else None
            headers = [pair for pair in message["headers"] if pair[0] != length]
            await self._visit.send({**message, "headers": headers})
        elif not self._spoils:
            await self._visit.send(message)
        else:
            await self._pass(bytes(message.get("body", b"")))
            if not message.get("more_body") and not self._gone:
                await self._visit.send({"type": "http.response.body", "body": b""})

    async def _pass(self, data: bytes) -> None:
        for frame in self._frames(data):
            for step in self._spoiler.spoil(frame):
                if self._gone:
                    return
                await self._take(step)

    async def _take(self, step: Step) -> None:
        match step:
            case bytes():
                await self._visit.send({"type": "http.response.body", "body": step, "more_body": True})
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Freeze(seconds):
                time.sleep(seconds)  # on purpose: everything of this node is to stand still
            case HangUp():
                self._gone = True
                self._visit.hang_up()
            case Die():
                end_process()

    def _frames(self, data: bytes) -> Iterator[SentFrame]:
        self._rest += data
        while frame := self._next():
            yield frame

    def _next(self) -> SentFrame | None:
        if self._head is None:
            if len(self._rest) < HEAD_BYTES:
                return None
            head_bytes, self._rest = self._rest[:HEAD_BYTES], self._rest[HEAD_BYTES:]
            self._head = self._reader.parse_head(head_bytes), head_bytes
        head, head_bytes = self._head
        if len(self._rest) < head.length:
            return None
        payload, self._rest = self._rest[: head.length], self._rest[head.length :]
        self._reader.check(head, payload)
        self._head = None
        return SentFrame(head, head_bytes, payload)


_HAPPENINGS: dict[Act, Callable[[Meeting], Awaitable[None]]] = {
    Act.DELAY: Meeting.delay,
    Act.SILENCE: Meeting.silence,
    Act.HANG_UP: Meeting.hang_up,
    Act.BUSY: Meeting.busy,
    Act.POOL_FULL: Meeting.pool_full,
    Act.OTHER_IDENTITY: Meeting.other_identity,
    Act.NONSENSE: Meeting.nonsense,
    Act.WRONG_KEY: Meeting.wrong_key,
    Act.SKEWED_CLOCK: Meeting.skewed_clock,
    Act.REPLAY: Meeting.replay,
    Act.FORGED_REPLY: Meeting.forged_reply,
    Act.PROMISE: Meeting.promise,
    Act.BOAST: Meeting.boast,
    Act.EXIT: Meeting.exit,
}
"""Faults of a request as a whole."""


def _target(scope: Scope) -> str:
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")


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


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


__all__ = ["FaultDoor", "Meeting", "SpoiltStream", "Visit"]
