from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from kakeya_ops.errors import StreamCorrupt
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.serving import streams
from kakeya_ops.serving.streams import Frame, FrameStream, Upload, block_frames_bytes
from kakeya_ops.wire.frames import FrameReader, FrameType, FrameWriter, stream_key
from serving.running import KEY, block_hash, payload, simple_layout

LAYOUT = simple_layout(row_bytes=16)
KEY_UP = stream_key(KEY, "up", "0" * 32)
KEYS = [PartKey(block_hash(block), 0) for block in range(3)]
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(10):
            return await coroutine

    return asyncio.run(limited())


def encode() -> list[Frame]:
    writer = FrameWriter(KEY_UP)
    frames = [writer.encode(FrameType.HEADER, b"{}")]
    frames += [writer.encode_block(key, block, payload(LAYOUT, 0, block)) for block, key in enumerate(KEYS)]
    return [*frames, writer.encode(FrameType.END)]


class Peer:
    """The other end of an ASGI app: it takes everything, or nothing after so many messages, or leaves."""

    def __init__(self, *, takes: int = 1000, leaves_after: int = 1000) -> None:
        self.sent: list[Message] = []
        self._takes = takes
        self._leaves_after = leaves_after
        self._left = asyncio.Event()

    async def send(self, message: Message) -> None:
        if len(self.sent) >= self._takes:
            await asyncio.Event().wait()
        self.sent.append(message)
        if len(self.sent) >= self._leaves_after:
            self._left.set()
            await asyncio.sleep(0)

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    @property
    def body(self) -> bytes:
        return b"".join(bytes(message.get("body", b"")) for message in self.sent)


async def produce(frames: list[Frame]) -> AsyncIterator[Frame]:
    for frame in frames:
        yield frame
        await asyncio.sleep(0)


def respond(peer: Peer, frames: AsyncIterator[Frame], length: int | None = None) -> int:
    """How often the end of the response was told."""
    ends = []
    run(FrameStream(frames, lambda: ends.append(1), length)({"type": "http"}, peer.receive, peer.send))
    return len(ends)


def test_every_byte_is_sent_and_a_known_length_announced() -> None:
    frames = encode()
    whole = b"".join(head + bytes(body) for head, body in frames)
    peer = Peer()
    assert respond(peer, produce(frames), len(whole)) == 1
    assert peer.body == whole
    assert (b"content-length", str(len(whole)).encode()) in peer.sent[0]["headers"]
    assert peer.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_large_payloads_are_not_copied() -> None:
    large = memoryview(bytes(1_000_000))
    peer = Peer()
    respond(peer, produce([(b"head", large)]))
    assert peer.sent[2]["body"] is large


def test_a_receiver_that_leaves_ends_the_stream() -> None:
    asked = 0

    async def endless() -> AsyncIterator[Frame]:
        nonlocal asked
        while True:
            asked += 1
            yield b"head", memoryview(b"body")
            await asyncio.sleep(0)

    assert respond(Peer(leaves_after=4), endless()) == 1
    assert asked < 10


def test_a_receiver_that_leaves_while_nothing_is_sent_ends_the_stream() -> None:
    async def silent() -> AsyncIterator[Frame]:
        await asyncio.Event().wait()
        yield b"never", memoryview(b"")

    assert respond(Peer(leaves_after=1), silent()) == 1


def test_a_receiver_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.05)
    assert respond(Peer(takes=3), produce(encode())) == 1


def test_a_source_that_fails_is_told_and_the_end_all_the_same() -> None:
    async def failing() -> AsyncIterator[Frame]:
        yield b"head", memoryview(b"")
        raise ValueError("a bug")

    ends = []
    peer = Peer()
    with pytest.raises(ValueError, match="a bug"):
        run(FrameStream(failing(), lambda: ends.append(1))({"type": "http"}, peer.receive, peer.send))
    assert ends == [1]


async def receive(data: bytes, cuts: list[int]) -> list[tuple[FrameType, bytes]]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]

    async def chunks() -> AsyncIterator[bytes]:
        for start, stop in itertools.pairwise(places):
            if stop > start:
                yield data[start:stop]
        yield b""

    upload = Upload(FrameReader(KEY_UP, LAYOUT), chunks())
    return [(head.type, bytes(body)) async for head, body in upload.frames()]


@given(st.lists(st.integers(0, 5000), max_size=30))
def test_an_upload_is_put_together_however_it_was_cut(cuts: list[int]) -> None:
    frames = encode()
    received = run(receive(b"".join(head + bytes(body) for head, body in frames), cuts))
    assert [body for _, body in received] == [bytes(body) for _, body in frames]
    assert [type for type, _ in received] == [FrameType.HEADER, *[FrameType.BLOCK] * 3, FrameType.END]


@given(st.integers(0, 3000), st.lists(st.integers(0, 5000), max_size=5))
def test_an_upload_that_stops_is_corrupt(kept: int, cuts: list[int]) -> None:
    whole = b"".join(head + bytes(body) for head, body in encode())
    with pytest.raises(StreamCorrupt):
        run(receive(whole[: min(kept, len(whole) - 1)], cuts))


def test_an_upload_whose_sender_falls_silent_is_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STALL_SECONDS", 0.05)

    async def chunks() -> AsyncIterator[bytes]:
        yield encode()[0][0]
        await asyncio.Event().wait()

    async def receive_all() -> None:
        async for _ in Upload(FrameReader(KEY_UP, LAYOUT), chunks()).frames():
            raise AssertionError("no frame has come")

    with pytest.raises(StreamCorrupt, match="cut short"):
        run(receive_all())


def test_bytes_of_block_frames() -> None:
    frames = encode()
    found = {key: payload(LAYOUT, 0, block) for block, key in enumerate(KEYS)}
    asked = [*KEYS, PartKey(block_hash(9), 0)]
    assert block_frames_bytes(asked, found) == sum(len(head) + len(body) for head, body in frames[1:-1])
