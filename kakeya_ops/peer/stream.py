"""A peer's stream of frames, read straight into buffers of exactly the right size."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import TypeVar

from kakeya_ops.errors import InputError, PeerUnreachable, StreamCorrupt
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.peer.connection import StopFlag, translated
from kakeya_ops.peer.room import Room
from kakeya_ops.wire.bodies import ErrorBody
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.frames import HEAD_BYTES, FrameHead, FrameReader, FrameType
from kakeya_ops.wire.statuses import peer_error

B = TypeVar("B", bound=WireBody)


class IncomingStream:
    """The frames of one response. What they say is checked by the reader before anybody sees it."""

    def __init__(
        self, peer: str, response: http.client.HTTPResponse, reader: FrameReader, stop: StopFlag, room: Room
    ) -> None:
        self._peer = peer
        self._response = response
        self._room = room
        self._head = memoryview(bytearray(HEAD_BYTES))
        self._reader = reader
        self._stop = stop

    def __iter__(self) -> Iterator[tuple[FrameHead, memoryview]]:
        """Each frame up to the end, with its payload in a buffer of its own.

        Raises `PeerError`: what an ``ERROR`` frame says, `StreamCorrupt` for a wrong frame, `PeerUnreachable` when the
        stream stops before its end, `PeerTimeout` when nothing comes.
        """
        while not self._reader.ended:
            head, payload = self._read_frame()
            if head.type is FrameType.ERROR:
                body = self.parse(ErrorBody, payload)
                raise peer_error(self._peer, 500, body)
            if head.type is not FrameType.END:
                yield head, payload
        self._finish()

    def parse(self, kind: type[B], payload: memoryview) -> B:
        """The body of a frame that is not a block. Raises `StreamCorrupt` if it is none of `kind`."""
        try:
            return kind.parse(bytes(payload))
        except InputError as error:
            raise StreamCorrupt(self._peer, error.message) from error

    def _read_frame(self) -> tuple[FrameHead, memoryview]:
        with translated(self._peer, self._stop):
            self._fill(self._head)
            head = self._reader.parse_head(self._head)
            payload = self._room.take(head.length)
            self._fill(payload)
        return head, self._reader.check(head, payload)

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            got = self._response.readinto(buffer)
            if not got:
                raise PeerUnreachable(self._peer, "the stream stopped before its end")
            buffer = buffer[got:]

    def _finish(self) -> None:
        """Read the end of the response itself, so that its connection can be used again."""
        with translated(self._peer, self._stop):
            if self._response.read(1):
                raise StreamCorrupt(self._peer, "sent bytes after the end of the stream")


def stored(head: FrameHead, payload: memoryview) -> StoredPart:
    """The payload of a checked block frame as the pool keeps it."""
    return StoredPart(payload.toreadonly(), head.checksum)


__all__ = ["IncomingStream", "stored"]
