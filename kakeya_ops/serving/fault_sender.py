"""Carries out what a spoiler makes of a stream: takes the answer apart into frames, and sends, waits, or hangs up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from starlette.types import Message, Send

from kakeya_ops.serving.fault_stream import Die, Freeze, HangUp, SentFrame, Spoiler, Step, Wait
from kakeya_ops.serving.faults import end_process
from kakeya_ops.wire.frames import HEAD_BYTES, FrameHead, FrameReader


class SpoiltStream:
    """Takes the place of the server's `send` for one answer; `hang_up` breaks its connection.

    Only an answer of status 200 is a stream, and spoilt; any other goes by.
    """

    def __init__(self, send: Send, hang_up: Callable[[], None], reader: FrameReader, spoiler: Spoiler) -> None:
        self._send = send
        self._hang_up = hang_up
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
            await self._send({**message, "headers": headers})
        elif not self._spoils:
            await self._send(message)
        else:
            await self._pass(bytes(message.get("body", b"")))
            if not message.get("more_body") and not self._gone:
                await self._send({"type": "http.response.body", "body": b""})

    async def _pass(self, data: bytes) -> None:
        for frame in self._frames(data):
            for step in self._spoiler.spoil(frame):
                if self._gone:
                    return
                await self._take(step)

    async def _take(self, step: Step) -> None:
        match step:
            case bytes():
                await self._send({"type": "http.response.body", "body": step, "more_body": True})
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Freeze(seconds):
                time.sleep(seconds)  # on purpose: everything of this node is to stand still
            case HangUp():
                self._gone = True
                self._hang_up()
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


__all__ = ["SpoiltStream"]
