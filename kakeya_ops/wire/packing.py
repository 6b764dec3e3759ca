"""KV made smaller for slow links, without loss: the exponents of its floats take few values, all other bits are noise.

A payload's numbers are turned left by one bit, so that the exponent fills the uppermost byte (of a float16 exponent and
the beginning of the mantissa). These bytes are coded by Huffman's method (DEFLATE, RFC 1951, without looking for
repetitions, of which there are none); the other bytes follow as they are. ``docs/performance.md`` has what it saves.

The reader knows both lengths before it reads: the layout says how many numbers there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from kakeya_ops.kv.layout import ITEM_BYTES, KvLayout, PartLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer

    Bytes = NDArray[np.uint8]

PACKING: Literal["exponents"] = "exponents"
"""The only one there is."""
_RAW_DEFLATE = -15
_LEVEL = 1


class Packing:
    """Packs and unpacks the payloads of one layout. Thread-safe: it has no state."""

    def __init__(self, layout: KvLayout) -> None:
        self._parts = tuple(_Shape(part) for part in layout.parts)

    def pack(self, part: int, data: Buffer) -> memoryview | None:
        """A payload of that part made smaller, or None where it would not be."""
        shape = self._parts[part]
        uppers, rests = zip(*(_split(piece, width) for piece, width in shape.cut(_bytes(data))), strict=True)
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, zlib.MAX_WBITS - 6, zlib.Z_HUFFMAN_ONLY)
        pieces = [deflate.compress(np.concatenate(uppers).data), deflate.flush(), *(rest.tobytes() for rest in rests)]
        packed = b"".join(pieces)
        return memoryview(packed) if len(packed) < shape.nbytes else None

    def fits(self, part: int, length: int) -> bool:
        """Whether something packed of that part can have that length."""
        shape = self._parts[part]
        return shape.rest_bytes < length < shape.nbytes

    def unpack(self, part: int, packed: Buffer) -> memoryview:
        """The payload again; its length is the layout's. Raises `ValueError` for what was not packed by `pack`."""
        shape = self._parts[part]
        view = memoryview(packed).cast("B")
        if not self.fits(part, view.nbytes):
            raise ValueError("a packed payload of a length that none can have")
        coded = view.nbytes - shape.rest_bytes
        uppers, rests = _inflate(view[:coded], shape.items), np.frombuffer(view[coded:], np.uint8)
        out = np.empty(shape.nbytes, np.uint8)
        for piece, width in shape.cut(out):
            items = piece.nbytes // width
            upper, uppers = uppers[:items], uppers[items:]
            rest, rests = rests[: items * (width - 1)], rests[items * (width - 1) :]
            _join(piece, width, upper, rest)
        return out.data


class _Shape:
    """How many numbers a part's payload has, and of which widths."""

    def __init__(self, part: PartLayout) -> None:
        self._arrays = tuple((array.nbytes, ITEM_BYTES[array.dtype]) for array in part.arrays)
        self.nbytes = part.nbytes
        self.items = sum(nbytes // width for nbytes, width in self._arrays)
        self.rest_bytes = self.nbytes - self.items

    def cut(self, whole: Bytes) -> Iterator[tuple[Bytes, int]]:
        """Each array's bytes, and the width of its numbers."""
        start = 0
        for nbytes, width in self._arrays:
            yield whole[start : start + nbytes], width
            start += nbytes


def _bytes(data: Buffer) -> Bytes:
    return np.frombuffer(memoryview(data), np.uint8)


def _inflate(coded: memoryview, count: int) -> Bytes:
    """Exactly `count` bytes: never more are made, whatever `coded` holds."""
    inflate = zlib.decompressobj(_RAW_DEFLATE)
    try:
        data = inflate.decompress(coded, count)
        # The end of the block is read only when there is room for more.
        surplus = inflate.decompress(inflate.unconsumed_tail, 1) if not inflate.eof else b""
    except zlib.error as error:
        raise ValueError("a packed payload that cannot be read") from error
    if len(data) != count or surplus or not inflate.eof or inflate.unused_data or inflate.unconsumed_tail:
        raise ValueError("a packed payload of another length")
    return np.frombuffer(data, np.uint8)


def _split(piece: Bytes, width: int) -> tuple[Bytes, Bytes]:
    """The uppermost byte of each number after a turn to the left, and the others in order."""
    kind = np.dtype(f"<u{width}")
    numbers = np.frombuffer(piece, kind)
    turned = (numbers << 1) | (numbers >> (8 * width - 1))
    planes = turned.astype(kind, copy=False).view(np.uint8).reshape(-1, width)
    return np.ascontiguousarray(planes[:, -1]), np.ascontiguousarray(planes[:, :-1]).reshape(-1)


def _join(piece: Bytes, width: int, upper: Bytes, rest: Bytes) -> None:
    """Write the numbers of which `_split` made these into `piece`."""
    planes = piece.reshape(-1, width)
    planes[:, -1], planes[:, :-1] = upper, rest.reshape(-1, width - 1)
    numbers = piece.view(np.dtype(f"<u{width}"))
    numbers[:] = (numbers >> 1) | (numbers << (8 * width - 1))


__all__ = ["PACKING", "Packing"]
