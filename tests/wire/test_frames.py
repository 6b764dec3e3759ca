from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.errors import StreamCorrupt
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.frames import (
    CONTROL_LIMIT_BYTES,
    HEAD_BYTES,
    MAGIC,
    FrameHead,
    FrameReader,
    FrameType,
    FrameWriter,
    stream_key,
)

ROWS = PartLayout("full", (ArrayLayout(0, "keys", "float32", (1, 2, 3)),))
STATE = PartLayout("state", (ArrayLayout(1, "0", "float16", (5,)),))
LAYOUT = KvLayout(2, ("KVCache", "ArraysCache"), (ROWS, STATE))
HASHES = tuple(BlockHash(bytes([block]) * 32) for block in range(3))
KEY = stream_key(Secret(bytes(range(32))), "down", "00" * 16)

Frame = tuple[bytes, bytes]


def make_part(block: int, part: int) -> StoredPart:
    return StoredPart.of(bytes([16 * block + part]) * LAYOUT.parts[part].nbytes)


def send(frame: tuple[bytes, memoryview]) -> Frame:
    """What arrives of a frame."""
    return frame[0], bytes(frame[1])


def write_stream(key: Secret = KEY) -> list[Frame]:
    """A whole stream of two blocks, with every type of frame but ``ERROR``."""
    writer = FrameWriter(key)
    frames = [writer.encode(FrameType.HEADER, b'{"blocks":3}'), writer.encode(FrameType.PROGRESS, b"{}")]
    frames += [
        writer.encode_block(PartKey(HASHES[block], part), block, make_part(block, part))
        for block in (0, 2)
        for part in range(2)
    ]
    frames += [writer.encode(FrameType.RECEIPT, b'{"job":"1"}'), writer.encode(FrameType.END)]
    return [send(frame) for frame in frames]


STREAM = write_stream()


def read_stream(reader: FrameReader, frames: Iterable[Frame]) -> list[tuple[FrameHead, bytes]]:
    """All frames, accepted."""
    accepted = []
    for head_bytes, payload in frames:
        head = reader.parse_head(head_bytes)
        reader.check(head, payload)
        accepted.append((head, payload))
    return accepted


def read_bytes(reader: FrameReader, data: bytes) -> tuple[list[tuple[FrameHead, bytes]], list[int]]:
    """What a receiver of `data` accepts before it ends or is corrupt, and how much it allocated for each payload."""
    accepted: list[tuple[FrameHead, bytes]] = []
    allocated_bytes = []
    at = 0
    try:
        while not reader.ended and at < len(data):
            head = reader.parse_head(data[at : at + HEAD_BYTES])
            allocated_bytes.append(head.length)
            payload = data[at + HEAD_BYTES : at + HEAD_BYTES + head.length]
            reader.check(head, payload)
            accepted.append((head, payload))
            at += HEAD_BYTES + head.length
    except StreamCorrupt:
        assert not reader.ended
    return accepted, allocated_bytes


def flatten(frames: Sequence[Frame]) -> bytes:
    return b"".join(head + payload for head, payload in frames)


WHOLE = read_stream(FrameReader(KEY, LAYOUT), STREAM)


def test_a_stream_arrives_as_it_was_sent() -> None:
    reader = FrameReader(KEY, LAYOUT, hashes=HASHES)
    accepted = read_stream(reader, STREAM)
    assert reader.ended
    assert [(head.type.name, head.sequence) for head, _ in accepted] == [
        ("HEADER", 0),
        ("PROGRESS", 1),
        *(("BLOCK", sequence) for sequence in range(2, 6)),
        ("RECEIPT", 6),
        ("END", 7),
    ]
    blocks = [(head, payload) for head, payload in accepted if head.type is FrameType.BLOCK]
    assert [(head.block, head.key) for head, _ in blocks] == [
        (block, PartKey(HASHES[block], part)) for block in (0, 2) for part in range(2)
    ]
    for head, payload in blocks:
        assert payload == make_part(head.block, head.part).data
        assert head.checksum == content_checksum(payload)


def test_payloads_are_not_copied() -> None:
    writer = FrameWriter(KEY)
    writer.encode(FrameType.HEADER, b"{}")
    part = make_part(0, 0)
    assert writer.encode_block(PartKey(HASHES[0], 0), 0, part)[1] is part.data


def test_the_tag_is_gmac_over_head_and_payload() -> None:
    for sequence, (head, payload) in enumerate(STREAM):
        fields, tag = head[:-16], head[-16:]
        assert AESGCM(KEY.reveal()[:16]).encrypt(sequence.to_bytes(12, "little"), b"", fields + payload) == tag


def test_each_stream_has_a_key_of_its_own() -> None:
    fleet, nonce = Secret(bytes(32)), "00" * 16
    keys = [
        stream_key(fleet, "down", nonce),
        stream_key(fleet, "up", nonce),
        stream_key(fleet, "down", "11" * 16),
        stream_key(Secret(b"other"), "down", nonce),
        stream_key(None, "down", nonce),
    ]
    assert len(set(keys)) == len(keys)
    assert stream_key(None, "up", nonce) == stream_key(None, "up", nonce)


def refuse(reader: FrameReader, frames: Iterable[Frame], match: str) -> None:
    with pytest.raises(StreamCorrupt, match=match) as caught:
        read_stream(reader, frames)
    assert caught.value.peer == "worker"
    assert not reader.ended


def make_reader(**options: Sequence[BlockHash]) -> FrameReader:
    return FrameReader(KEY, LAYOUT, peer="worker", **options)


def test_another_streams_frames_are_refused() -> None:
    refuse(make_reader(), write_stream(stream_key(None, "down", "00" * 16)), "wrong tag")


@pytest.mark.parametrize("at", range(len(STREAM)))
def test_a_dropped_a_doubled_and_a_moved_frame_are_refused(at: int) -> None:
    if at + 1 < len(STREAM):
        refuse(make_reader(), [*STREAM[:at], *STREAM[at + 1 :]], "next frame")
        refuse(make_reader(), [*STREAM[:at], STREAM[at + 1], STREAM[at], *STREAM[at + 2 :]], "next frame")
        refuse(make_reader(), [*STREAM[: at + 1], STREAM[at], *STREAM[at + 1 :]], "next frame")


@settings(max_examples=60)
@given(st.data())
def test_any_changed_bit_is_found(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(STREAM) - 1))
    changed = bytearray(STREAM[at][0] + STREAM[at][1])
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    accepted, _ = read_bytes(FrameReader(KEY, LAYOUT), flatten(STREAM[:at]) + changed + flatten(STREAM[at + 1 :]))
    assert accepted == WHOLE[:at]


SPLICES = st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**4), st.binary(max_size=200)), max_size=3)


@settings(max_examples=300)
@given(
    splices=SPLICES,
    order=st.lists(st.integers(0, len(STREAM) - 1), max_size=12) | st.just(list(range(len(STREAM)))),
    tail=st.binary(max_size=300),
)
def test_hostile_bytes_never_give_anything_but_the_senders_frames(
    splices: list[tuple[int, int, bytes]], order: list[int], tail: bytes
) -> None:
    data = flatten([STREAM[index] for index in order]) + tail
    for start, length, inserted in splices:
        at = start % (len(data) + 1)
        data = data[:at] + inserted + data[at + length % (len(data) + 1 - at) :]
    accepted, allocated_bytes = read_bytes(FrameReader(KEY, LAYOUT), data)
    assert accepted == WHOLE[: len(accepted)]
    largest_bytes = max(CONTROL_LIMIT_BYTES, *(part.nbytes for part in LAYOUT.parts))
    assert all(nbytes <= largest_bytes for nbytes in allocated_bytes)


@given(st.binary(max_size=2 * HEAD_BYTES))
def test_arbitrary_heads_are_refused(data: bytes) -> None:
    with pytest.raises(StreamCorrupt):
        FrameReader(KEY, LAYOUT).parse_head(data)


HEAD_FIELDS = {"type": (4, 1), "flags": (5, 1), "part": (6, 2), "sequence": (8, 4), "block": (12, 4), "length": (16, 4)}


def forge(frame: Frame, **values: int) -> Frame:
    """`frame` with other values in its head, as a stranger would send it."""
    head = bytearray(frame[0])
    for name, value in values.items():
        start, size = HEAD_FIELDS[name]
        head[start : start + size] = value.to_bytes(size, "little")
    return bytes(head), frame[1]


@pytest.mark.parametrize(
    ("at", "values", "match"),
    [
        (1, {"length": CONTROL_LIMIT_BYTES + 1}, "more than 65536"),
        (1, {"length": 2**32 - 1}, "more than 65536"),
        (7, {"length": 1}, "more than 0"),
        (2, {"length": ROWS.nbytes + 1}, "instead of 24"),
        (2, {"length": STATE.nbytes}, "instead of 24"),
        (2, {"length": 0}, "instead of 24"),
        (2, {"part": 2}, "part 2 of 2"),
        (2, {"part": 2**16 - 1}, "part 65535 of 2"),
        (1, {"part": 1}, "block's fields"),
        (1, {"block": 1}, "block's fields"),
        (1, {"flags": 1}, "next frame"),
        (1, {"type": 0}, "next frame"),
        (1, {"type": 7}, "next frame"),
        (1, {"sequence": 2}, "next frame"),
        (1, {"type": 1}, "out of order"),
        (0, {"type": 3}, "out of order"),
    ],
)
def test_bounds_are_checked_before_anything_is_read(at: int, values: dict[str, int], match: str) -> None:
    reader = make_reader()
    read_stream(reader, STREAM[:at])
    with pytest.raises(StreamCorrupt, match=match):
        reader.parse_head(forge(STREAM[at], **values)[0])


@pytest.mark.parametrize("hashes", [HASHES[:2], (*HASHES[:2], HASHES[0]), ()])
def test_blocks_that_were_not_asked_for_are_refused(hashes: tuple[BlockHash, ...]) -> None:
    refuse(make_reader(hashes=hashes), STREAM, "not asked for")


def test_bytes_that_changed_after_they_were_stored_are_found() -> None:
    writer = FrameWriter(KEY)
    header = writer.encode(FrameType.HEADER, b"{}")
    rotten = StoredPart(memoryview(bytes(ROWS.nbytes)), content_checksum(b"what it was"))
    block = writer.encode_block(PartKey(HASHES[0], 0), 0, rotten)
    refuse(make_reader(), [send(header), send(block)], "wrong checksum")


def test_nothing_is_accepted_after_a_corrupt_frame() -> None:
    reader = make_reader()
    refuse(reader, [forge(STREAM[0], length=13)], "cut short")
    refuse(reader, STREAM, "out of turn")


def test_nothing_is_accepted_after_the_end() -> None:
    reader = make_reader()
    read_stream(reader, STREAM)
    with pytest.raises(StreamCorrupt):
        reader.parse_head(STREAM[0][0])


def test_heads_and_payloads_take_turns() -> None:
    reader = make_reader()
    head = reader.parse_head(STREAM[0][0])
    with pytest.raises(StreamCorrupt):
        reader.parse_head(STREAM[1][0])
    with pytest.raises(StreamCorrupt):
        reader.check(head, STREAM[0][1])


def test_a_payload_of_another_length_is_refused() -> None:
    refuse(make_reader(), [(STREAM[0][0], STREAM[0][1] + b" ")], "cut short")


@pytest.mark.parametrize("frames_before", [0, 3])
def test_an_error_ends_a_stream_anywhere(frames_before: int) -> None:
    writer = FrameWriter(KEY)
    frames = [writer.encode(FrameType.HEADER, b"{}"), *(writer.encode(FrameType.PROGRESS) for _ in range(2))]
    writer = FrameWriter(KEY) if frames_before == 0 else writer
    frames = [*frames[:frames_before], writer.encode(FrameType.ERROR, b'{"code":"internal"}')]
    reader = make_reader()
    read_stream(reader, [send(frame) for frame in frames])
    assert reader.ended


def test_the_writer_keeps_to_the_order_and_the_sizes() -> None:
    writer = FrameWriter(KEY)
    with pytest.raises(ValueError, match="out of order"):
        writer.encode(FrameType.END)
    with pytest.raises(ValueError, match="not a control frame"):
        writer.encode(FrameType.HEADER, bytes(CONTROL_LIMIT_BYTES + 1))
    writer.encode(FrameType.HEADER)
    with pytest.raises(ValueError, match="out of order"):
        writer.encode(FrameType.HEADER)
    with pytest.raises(ValueError, match="not a control frame"):
        writer.encode(FrameType.BLOCK)
    with pytest.raises(ValueError, match="not a control frame"):
        writer.encode(FrameType.END, b"x")
    writer.encode(FrameType.END)
    with pytest.raises(ValueError, match="after the end"):
        writer.encode_block(PartKey(HASHES[0], 0), 0, make_part(0, 0))


def test_a_refused_frame_takes_no_number() -> None:
    writer = FrameWriter(KEY)
    with pytest.raises(ValueError, match="out of order"):
        writer.encode(FrameType.PROGRESS)
    frames = [writer.encode(FrameType.HEADER), writer.encode(FrameType.END)]
    read_stream(make_reader(), [send(frame) for frame in frames])


def test_a_random_stream_of_many_blocks_arrives() -> None:
    choice = random.Random(7)
    writer, reader = FrameWriter(KEY), FrameReader(KEY, LAYOUT)
    read_stream(reader, [send(writer.encode(FrameType.HEADER))])
    for sequence in range(1, 500):
        block, part = choice.randrange(2**32), choice.randrange(2)
        stored = StoredPart.of(choice.randbytes(LAYOUT.parts[part].nbytes))
        key = PartKey(BlockHash(choice.randbytes(32)), part)
        head_bytes, payload = writer.encode_block(key, block, stored)
        assert head_bytes[:4] == MAGIC
        head = reader.parse_head(bytearray(head_bytes))
        reader.check(head, bytearray(payload))
        assert (head.sequence, head.block, head.key) == (sequence, block, key)
