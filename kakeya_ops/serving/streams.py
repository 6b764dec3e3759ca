"""Streams of frames on the serving side: sent without copying payloads, received into buffers of the right size."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from starlette.types import Message, Receive, Scope, Send

from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.wire.frames import HEAD_BYTES, FrameHead, FrameReader
from kakeya_ops.wire.packing import Packing

if TYPE_CHECKING:
    from typing_extensions import Buffer

CONTENT_TYPE = "application/octet-stream"
STALL_SECONDS = 60.0
"""A peer that takes or sends nothing for so long has gone, or might as well have."""
_JOIN_BYTES = 4096
"""Payloads up to this size go out in one piece with their head."""

_logger = logging.getLogger(__name__)

Frame = tuple[bytes, memoryview]


class FrameStream:
    """A response whose body is `frames`, of `length` bytes where that is known.

    `on_end` is called once afterwards, whatever happens: also when the receiver goes away, or takes nothing any more.
    """

    def __init__(self, frames: AsyncIterator[Frame], on_end: Callable[[], None], length: int | None = None) -> None:
        self._frames = frames
        self._on_end = on_end
        self._headers = [(b"content-type", CONTENT_TYPE.encode())]
        if length is not None:
            self._headers.append((b"content-length", str(length).encode()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, as an ASGI app."""
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(_wait_until_gone(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except TimeoutError:
            _logger.warning("a receiver took nothing for %d s and was given up", STALL_SECONDS)
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._on_end()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        async for head, payload in self._frames:
            if len(payload) <= _JOIN_BYTES:
                await _send(send, head + payload)
            else:
                await _send(send, head)
                await _send(send, payload)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Upload:
    """The frames of a request's body, of a stream that is bounded before by its length."""

    def __init__(self, reader: FrameReader, chunks: AsyncIterator[bytes]) -> None:
        self._reader = reader
        self._chunks = chunks
        self._rest = memoryview(b"")

    async def frames(self) -> AsyncIterator[tuple[FrameHead, memoryview]]:
        """Each frame up to the last, checked, with its payload in a buffer of its own. Raises `StreamCorrupt`."""
        while not self._reader.ended:
            head = self._reader.parse_head(await self._read(HEAD_BYTES))
            payload = await self._read(head.length)
            yield head, self._reader.check(head, payload)

    async def _read(self, count: int) -> memoryview:
        """Exactly `count` bytes, fewer where the body ends or stalls."""
        buffer = np.empty(count, np.uint8).data
        filled = 0
        while filled < count:
            if not self._rest:
                self._rest = memoryview(await self._next_chunk())
                if not self._rest:
                    return buffer[:filled]
            taken = min(count - filled, len(self._rest))
            buffer[filled : filled + taken] = self._rest[:taken]
            self._rest = self._rest[taken:]
            filled += taken
        return buffer

    async def _next_chunk(self) -> bytes:
        """What comes next; nothing at the end of the body, or when its sender is silent for too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STALL_SECONDS):
                return await anext(self._chunks, b"")
        return b""


async def pack_aside(packing: Packing | None, part: int, stored: StoredPart) -> memoryview | None:
    """`stored` made smaller, on another thread; None without a `packing`, or where it would not be smaller."""
    return await asyncio.to_thread(packing.pack, part, stored.data) if packing else None


def block_frames_bytes(keys: Iterable[PartKey], found: Mapping[PartKey, StoredPart]) -> int:
    """Bytes of the block frames for those of `keys` that are among `found`."""
    return sum(HEAD_BYTES + found[key].nbytes for key in keys if key in found)


async def _send(send: Send, data: Buffer) -> None:
    message: Message = {"type": "http.response.body", "body": data, "more_body": True}
    async with asyncio.timeout(STALL_SECONDS):
        await send(message)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


__all__ = ["CONTENT_TYPE", "STALL_SECONDS", "Frame", "FrameStream", "Upload", "block_frames_bytes", "pack_aside"]
