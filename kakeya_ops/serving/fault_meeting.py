"""One verified request and the fault that it meets: answered by something else than the app, late, wrongly or never.

Nothing here signs what others said: a request is refused, passed on as it came, or its answer is spoilt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_ops.errors import EngineBusy, IdentityMismatch, KakeyaError, PoolFull
from kakeya_ops.secret import Secret
from kakeya_ops.serving.door import Door
from kakeya_ops.serving.fault_sender import SpoiltStream
from kakeya_ops.serving.fault_stream import STRANGER, Spoiler
from kakeya_ops.serving.faults import end_process
from kakeya_ops.serving.http_protocol import HANG_UP
from kakeya_ops.serving.node import Node
from kakeya_ops.wire.bodies import LookupReply
from kakeya_ops.wire.drills import ON_STREAMS, Act, Fault
from kakeya_ops.wire.frames import FrameReader, stream_key
from kakeya_ops.wire.packing import Packing
from kakeya_ops.wire.signing import REPLY_HEADER, Caller, RequestGate, SignedRequest, verify_request


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

    def __init__(self, node: Node, fault: Fault, visit: Visit, document: dict[str, Any]) -> None:
        self._node = node
        self._fault = fault
        self._visit = visit
        self._document = document

    async def happen(self) -> None:
        """Answer the request as the fault has it."""
        if self._fault.act in ON_STREAMS:
            await self._go_on(send=self._spoilt())
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
        await self._refuse(EngineBusy(5.0), self._visit.caller)

    async def pool_full(self) -> None:
        """Say that the pool has no room."""
        await self._refuse(PoolFull(1, 0), self._visit.caller)

    async def other_identity(self) -> None:
        """Say that this node has another cache identity by now."""
        caller = self._visit.caller
        await self._refuse(IdentityMismatch("weights", "those of a drill", "yours", peer=caller.node), caller)

    async def nonsense(self) -> None:
        """Answer as something else that happens to listen at this port."""
        start = {"type": "http.response.start", "status": 500, "headers": [(b"content-type", b"text/html")]}
        await self._visit.send(start)
        await self._visit.send({"type": "http.response.body", "body": b"<html>It works!</html>"})

    async def wrong_key(self) -> None:
        """Judge the request as a node of another fleet would, whose key is another."""
        await self._judge((STRANGER,), time.time())

    async def skewed_clock(self) -> None:
        """Judge the request as if the caller's clock were that far behind."""
        await self._judge(self._node.gate.keys, time.time() + self._fault.seconds)

    async def _judge(self, keys: Sequence[Secret], now: float) -> None:
        gate = self._node.gate
        try:
            # With a book of its own: the app is to find the nonce unused.
            verify_request(as_signed(self._visit.scope), RequestGate(keys, gate.node, gate.allow_unsigned), now)
        except KakeyaError as error:
            await self._refuse(error, None)
        else:
            await self._go_on()

    async def replay(self) -> None:
        """Take the request as one that was here before."""
        with suppress(KakeyaError):  # it is the next look at it that is to refuse
            verify_request(as_signed(self._visit.scope), self._node.gate, time.time())
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
        await self._answer(Door(self._node).reply(self._visit.caller, reply.encode()))

    async def _refuse(self, error: KakeyaError, caller: Caller | None) -> None:
        await self._answer(Door(self._node).refuse(error, caller))

    async def _answer(self, response: Response) -> None:
        await response(self._visit.scope, self._visit.receive, self._visit.send)

    async def _go_on(self, send: Send | None = None) -> None:
        visit = self._visit
        await visit.app(visit.scope, visit.receive, send or visit.send)

    def _spoilt(self) -> SpoiltStream:
        caller, layout = self._visit.caller, self._node.identity.layout
        tag_key = stream_key(caller.key, "down", caller.nonce)
        reader = FrameReader(tag_key, layout, packing=Packing(layout) if self._document.get("packing") else None)
        spoiler = Spoiler(self._fault, self._blocks(), tag_key, caller.key)
        return SpoiltStream(self._visit.send, self._visit.hang_up, reader, spoiler)

    def _blocks(self) -> int:
        """How many block frames the answer has, if it is whole."""
        if self._fault.on == "fetch":
            return len(self._document.get("blocks", ()))
        first, blocks = int(self._document.get("from_blocks", 0)), int(self._document.get("blocks", 0))
        return sum(block >= first for block, _ in self._node.identity.layout.needed(blocks))


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


def as_signed(scope: Scope) -> SignedRequest:
    """What the caller has signed of a request of `scope`, and its signature."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    target = (path + b"?" + query if query else path).decode("latin-1")
    return SignedRequest(Headers(scope=scope), scope["method"], target)


__all__ = ["Meeting", "Visit", "as_signed"]
