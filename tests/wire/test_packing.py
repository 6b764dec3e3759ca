"""Packed payloads: the same bits again, smaller for real numbers, and nothing else is read."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.errors import StreamCorrupt
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.frames import FrameReader, FrameType, FrameWriter
from kakeya_ops.wire.packing import Packing

KEYS = ArrayLayout(0, "keys", "bfloat16", (2, 16, 8))
PART = PartLayout("full", (KEYS, replace(KEYS, slot="values")))
MIXED = PartLayout("state", (replace(KEYS, slot="0"), ArrayLayout(1, "1", "float32", (3, 5)), replace(KEYS, leaf=2)))
LAYOUT = KvLayout(16, ("KVCache", "ArraysCache"), (PART, MIXED))
PACKING = Packing(LAYOUT)
KEY = Secret(b"k" * 32)
HASH = BlockHash(b"h" * 32)


def floats(part: int, seed: int = 0) -> bytes:
    """A payload of numbers like those of a model: of normal distribution, cut to their type."""
    pieces = []
    for array in LAYOUT.parts[part].arrays:
        numbers = np.random.default_rng(seed).normal(size=array.shape).astype(np.float32).view(np.uint32)
        pieces.append((numbers >> 16).astype(np.uint16).tobytes() if array.dtype == "bfloat16" else numbers.tobytes())
    return b"".join(pieces)


@pytest.mark.parametrize(("part", "share"), [(0, 0.8), (1, 0.9)])
def test_models_numbers_become_smaller_and_come_back_bit_for_bit(part: int, share: float) -> None:
    data = floats(part)
    packed = PACKING.pack(part, data)
    assert packed is not None
    assert PACKING.fits(part, packed.nbytes)
    assert packed.nbytes < share * len(data)
    assert PACKING.unpack(part, packed).tobytes() == data


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([0, 1]), st.randoms(use_true_random=False), st.integers(1, 256))
def test_any_bits_come_back_or_are_left_as_they_are(part: int, random: object, values: int) -> None:
    nbytes = LAYOUT.parts[part].nbytes
    data = bytes(random.randrange(values) for _ in range(nbytes))  # type: ignore[attr-defined]
    packed = PACKING.pack(part, data)
    if packed is not None:
        assert packed.nbytes < nbytes
        assert PACKING.unpack(part, packed).tobytes() == data


def test_noise_is_left_as_it_is() -> None:
    assert PACKING.pack(0, np.random.default_rng(1).bytes(PART.nbytes)) is None


def deflated(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflate.compress(data) + deflate.flush()


ITEMS = PART.nbytes // 2


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        bytes(ITEMS),
        bytes(PART.nbytes),
        deflated(bytes(ITEMS - 1)) + bytes(ITEMS),
        deflated(bytes(ITEMS + 1)) + bytes(ITEMS),
        deflated(bytes(10**6)) + bytes(ITEMS),  # a bomb
        deflated(bytes(ITEMS)) + b"x" + bytes(ITEMS),
        deflated(bytes(ITEMS))[:-1] + bytes(ITEMS),
        b"\xff" * 20 + bytes(ITEMS),
    ],
)
def test_what_was_not_packed_here_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="packed payload"):
        PACKING.unpack(0, packed)


@settings(deadline=None)
@given(st.binary(max_size=ITEMS - 1))
def test_no_bytes_make_more_or_less_than_a_payload(coded: bytes) -> None:
    try:
        unpacked = PACKING.unpack(0, coded + bytes(ITEMS))
    except ValueError:
        return
    assert unpacked.nbytes == PART.nbytes


def frames(packed: memoryview | None, stored: StoredPart) -> list[tuple[bytes, memoryview]]:
    writer = FrameWriter(KEY)
    return [writer.encode(FrameType.HEADER, b"{}"), writer.encode_block(PartKey(HASH, 0), 3, stored, packed)]


def read(sent: list[tuple[bytes, memoryview]], *, packing: Packing | None) -> memoryview:
    reader = FrameReader(KEY, LAYOUT, packing=packing)
    payload = memoryview(b"")
    for head, body in sent:
        payload = reader.check(reader.parse_head(head), body)
    return payload


def test_a_packed_frame_is_the_payload_again() -> None:
    stored = StoredPart.of(floats(0))
    packed = PACKING.pack(0, stored.data)
    assert packed is not None
    sent = frames(packed, stored)
    assert sent[1][1].nbytes == packed.nbytes
    assert read(sent, packing=PACKING).tobytes() == stored.data.tobytes()
    assert read(frames(None, stored), packing=PACKING).tobytes() == stored.data.tobytes()


def test_a_packed_frame_that_nobody_asked_for_is_refused() -> None:
    stored = StoredPart.of(floats(0))
    with pytest.raises(StreamCorrupt):
        read(frames(PACKING.pack(0, stored.data), stored), packing=None)


def test_a_packed_frame_of_other_bytes_than_were_stored_is_refused() -> None:
    stored, other = StoredPart.of(floats(0)), floats(0, seed=7)
    with pytest.raises(StreamCorrupt, match="checksum"):
        read(frames(PACKING.pack(0, other), stored), packing=PACKING)
    with pytest.raises(StreamCorrupt, match="packed payload"):
        read(frames(memoryview(b"\xff" * (ITEMS + 20)), stored), packing=PACKING)


def test_only_blocks_can_be_packed_and_a_flag_cannot_be_put_on() -> None:
    head, body = FrameWriter(KEY).encode(FrameType.HEADER, b"{}")
    flagged = head[:5] + b"\x01" + head[6:]
    with pytest.raises(StreamCorrupt):
        FrameReader(KEY, LAYOUT, packing=PACKING).parse_head(flagged)
    del body
