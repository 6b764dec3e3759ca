from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.errors import PeerBusy, PeerError, PeerRefused, PeerUnreachable, StreamCorrupt
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.peer.room import Room
from kakeya_ops.peer.stream import IncomingStream, stored
from kakeya_ops.secret import Secret
from kakeya_ops.wire.bodies import ErrorBody, Progress
from kakeya_ops.wire.frames import FrameReader, FrameType, FrameWriter, stream_key
from serving.running import block_hash, simple_layout
from serving.running import payload as block_payload

LAYOUT = simple_layout(row_bytes=16)
HASHES = [block_hash(index) for index in range(3)]
STREAM_KEY = stream_key(Secret(b"key"), "down", "0" * 32)


def encode(*frames: tuple[FrameType, bytes] | int) -> bytes:
    """A stream of control frames, and of blocks by their numbers."""
    writer = FrameWriter(STREAM_KEY)
    data = b""
    for frame in frames:
        if isinstance(frame, int):
            head, body = writer.encode_block(PartKey(HASHES[frame], 0), frame, block_payload(LAYOUT, 0, frame))
        else:
            head, body = writer.encode(*frame)
        data += head + bytes(body)
    return data


HEADER = (FrameType.HEADER, b"{}")
END = (FrameType.END, b"")
WHOLE = encode(HEADER, 0, 1, 2, (FrameType.PROGRESS, Progress(stage="computing").encode()), END)


def receive(data: bytes, *, announced: int | None = None, chunked: bool = False) -> Iterator[tuple[FrameType, bytes]]:
    """What a client makes of `data` as the body of a response."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {announced or len(data)}"
        body = b"".join(b"%x\r\n%b\r\n" % (len(data[i : i + 100]), data[i : i + 100]) for i in range(0, len(data), 100))
        theirs.sendall(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode() + (body + b"0\r\n\r\n" if chunked else data))
        theirs.shutdown(socket.SHUT_WR)
        with http.client.HTTPResponse(ours) as response:
            response.begin()
            reader = FrameReader(STREAM_KEY, LAYOUT, hashes=HASHES, peer="peer")
            for head, payload in IncomingStream("peer", response, reader, StopFlag(), Room()):
                yield head.type, bytes(payload)
            assert response.isclosed()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_whole_stream_is_read_to_its_end(chunked: bool) -> None:
    frames = list(receive(WHOLE, chunked=chunked))
    assert [type for type, _ in frames] == [FrameType.HEADER, *[FrameType.BLOCK] * 3, FrameType.PROGRESS]
    assert [data for _, data in frames[1:4]] == [bytes(block_payload(LAYOUT, 0, block).data) for block in range(3)]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, len(WHOLE) - 1))
def test_a_stream_that_stops_anywhere_is_broken(cut: int) -> None:
    with pytest.raises(PeerUnreachable):
        list(receive(WHOLE[:cut], announced=len(WHOLE)))


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_a_bit_that_flips_anywhere_is_found(place: int, bit: int) -> None:
    data = bytearray(WHOLE)
    data[place] ^= 1 << bit
    with pytest.raises((StreamCorrupt, PeerUnreachable)):
        list(receive(bytes(data)))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_an_error_of_the_peer(data: bytes) -> None:
    with pytest.raises(PeerError):
        list(receive(data))


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(StreamCorrupt, match="after the end"):
        list(receive(WHOLE + b"x"))


def test_an_error_frame_is_raised_as_what_it_says() -> None:
    busy = ErrorBody(code="engine_busy", message="full", retry_after_seconds=3.0)
    with pytest.raises(PeerBusy) as caught:
        list(receive(encode(HEADER, 0, (FrameType.ERROR, busy.encode()))))
    assert caught.value.retry_after_seconds == 3.0
    full = ErrorBody(code="pool_full", message="no room")
    with pytest.raises(PeerRefused, match="no room"):
        list(receive(encode((FrameType.ERROR, full.encode()))))


def test_a_control_frame_that_is_no_json_is_corrupt() -> None:
    with pytest.raises(StreamCorrupt):
        list(receive(encode(HEADER, (FrameType.ERROR, b"not json"))))


def test_a_block_is_handed_over_as_the_pool_keeps_it() -> None:
    writer, reader = FrameWriter(STREAM_KEY), FrameReader(STREAM_KEY, LAYOUT)
    fields, body = writer.encode(*HEADER)
    reader.check(reader.parse_head(fields), body)
    fields, body = writer.encode_block(PartKey(HASHES[0], 0), 0, block_payload(LAYOUT, 0, 0))
    head = reader.parse_head(fields)
    reader.check(head, body)
    part = stored(head, body)
    assert part == block_payload(LAYOUT, 0, 0)
    assert part.data.readonly
