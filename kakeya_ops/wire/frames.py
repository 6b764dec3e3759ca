"""KV on the wire: a stream of frames whose order, bytes and origin are all checked, and whose sizes are known before.

A frame is a fixed head and a payload. The tag (AES-128 GMAC) in the head covers both under a key that only this one
stream has, with the frame's number as nonce: a frame cannot be changed, dropped, moved or played again. A stream is one
``HEADER``, any number of ``BLOCK``, ``PROGRESS`` and ``RECEIPT`` frames, then ``END``; an ``ERROR`` ends it anywhere.
``docs/wire.md`` has the exact bytes.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from kakeya_ops.errors import StreamCorrupt
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.packing import Packing

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"KKF1"
CONTROL_LIMIT_BYTES = 64 * 1024
"""The largest payload of a frame that is not a block."""
MOST_FRAMES = 2**32
_PACKED = 1
"""The flag of a block whose payload is packed."""

_HEAD = struct.Struct("<4sBBHIII32s16s")
_TAG_BYTES = 16
HEAD_BYTES = _HEAD.size + _TAG_BYTES
"""Bytes before a payload: the fields, then the tag."""

_NO_HASH = BlockHash(bytes(32))
_UNSIGNED = Secret(b"a fleet without a key")

Direction = Literal["down", "up"]
"""``down`` is from server to client, the body of a response; ``up`` the body of a request."""


class FrameType(IntEnum):
    """What a frame's payload is; all but a block's are JSON bodies, and that of ``END`` is empty."""

    HEADER = 1
    BLOCK = 2
    PROGRESS = 3
    RECEIPT = 4
    ERROR = 5
    END = 6


_TYPES = frozenset(FrameType)
_LAST = frozenset({FrameType.ERROR, FrameType.END})


class FrameHead(NamedTuple):
    """A head whose bounds are checked; its bytes are the sender's only after `FrameReader.check`.

    `block` counts from the start of the prompt; `part` is an index into the layout's parts.
    """

    type: FrameType
    part: int
    sequence: int
    block: int
    length: int
    hash: BlockHash
    checksum: bytes
    tag: bytes
    packed: bool = False

    @property
    def key(self) -> PartKey:
        """The pool's key of a block frame."""
        return PartKey(self.hash, self.part)


def stream_key(fleet_key: Secret | None, direction: Direction, request_nonce: str) -> Secret:
    """The key of the one stream in `direction` that belongs to the request with `request_nonce`.

    Without a fleet key anybody can compute it, and tags only find accidents.
    """
    return (fleet_key or _UNSIGNED).derive(f"stream:{direction}:{request_nonce}")


class FrameWriter:
    """Makes the frames of one stream, in order. Not for several threads."""

    def __init__(self, key: Secret) -> None:
        self._tags = _Tags(key)
        self._order = _Order()

    def encode(self, type: FrameType, payload: Buffer = b"") -> tuple[bytes, memoryview]:
        """The head and the payload, both to be sent, of a frame that is not a block.

        Raises `ValueError` for a frame that may not come next, or a payload over `CONTROL_LIMIT_BYTES`.
        """
        data = memoryview(payload).cast("B")
        if type is FrameType.BLOCK or data.nbytes > (0 if type is FrameType.END else CONTROL_LIMIT_BYTES):
            raise ValueError(f"{type.name} frame of {data.nbytes} bytes is not a control frame")
        return self._encode(type, PartKey(_NO_HASH, 0), 0, StoredPart(data, content_checksum(data)))

    def encode_block(
        self, key: PartKey, block: int, part: StoredPart, packed: memoryview | None = None
    ) -> tuple[bytes, memoryview]:
        """The head and the payload, both to be sent, of one part of block number `block`.

        The checksum is the stored one, so that the receiver finds bytes that have changed since they were stored; with
        `packed`, which travels instead, it is still that of the payload itself, while the tag is over what travels.
        Raises `ValueError` for a frame that may not come next.
        """
        if packed is None:
            return self._encode(FrameType.BLOCK, key, block, part)
        return self._encode(FrameType.BLOCK, key, block, StoredPart(packed, part.checksum), _PACKED)

    def _encode(
        self, type: FrameType, key: PartKey, block: int, part: StoredPart, flags: int = 0
    ) -> tuple[bytes, memoryview]:
        fault = self._order.fault(type)
        if fault:
            raise ValueError(f"{type.name} frame {fault}")
        sequence = self._order.count
        fields = _HEAD.pack(MAGIC, type, flags, key.part, sequence, block, part.nbytes, key.hash, part.checksum)
        tag = self._tags.compute(sequence, fields, part.data)
        self._order.advance(type)
        return fields + tag, part.data


class FrameReader:
    """Checks the frames of one stream, in order. Not for several threads.

    What may be read is bounded by `layout`, never by the wire. With `hashes`, those of the prompt's blocks, a block
    that was not asked for is refused too, and without `packing` one that is packed. Every method raises
    `StreamCorrupt`, in the name of `peer`, for a frame that is not exactly what the writer made; after that nothing
    more is accepted.
    """

    def __init__(
        self,
        key: Secret,
        layout: KvLayout,
        *,
        hashes: Sequence[BlockHash] | None = None,
        peer: str = "peer",
        packing: Packing | None = None,
    ) -> None:
        self._tags = _Tags(key)
        self._order = _Order()
        self._part_bytes = tuple(part.nbytes for part in layout.parts)
        self._hashes = hashes
        self._peer = peer
        self._packing = packing
        self._pending: tuple[FrameHead, bytes] | None = None
        self._broken = False

    @property
    def ended(self) -> bool:
        """True once ``END`` or ``ERROR`` was checked; the end of the connection before that is a broken stream."""
        return self._order.ended

    def parse_head(self, data: Buffer) -> FrameHead:
        """The head in exactly `HEAD_BYTES` bytes; its `length` is what must be read next, and is within bounds."""
        raw = bytes(data)
        if len(raw) != HEAD_BYTES or self._broken or self._pending is not None:
            raise self._corrupt("head that is cut short or out of turn")
        magic, type, flags, part, sequence, block, length, hash, checksum = _HEAD.unpack_from(raw)
        if magic != MAGIC or flags not in self._flags(type) or type not in _TYPES or sequence != self._order.count:
            raise self._corrupt("head that is not the next frame's")
        tag = raw[_HEAD.size :]
        kind, name = FrameType(type), BlockHash(hash)
        head = FrameHead(kind, part, sequence, block, length, name, checksum, tag, flags == _PACKED)
        fault = self._order.fault(head.type) or self._find_fault(head)
        if fault:
            raise self._corrupt(f"{head.type.name} frame {fault}")
        self._pending = head, raw[: _HEAD.size]
        return head

    def check(self, head: FrameHead, payload: Buffer) -> memoryview:
        """Accept the frame of the last `parse_head`; its payload, unpacked, which may be used now and not before."""
        if self._pending is None or self._pending[0] is not head or self._broken:
            raise self._corrupt("payload without a head")
        view = memoryview(payload).cast("B")
        if view.nbytes != head.length:
            raise self._corrupt("payload that is cut short")
        if not hmac.compare_digest(self._tags.compute(head.sequence, self._pending[1], view), head.tag):
            raise self._corrupt("frame with a wrong tag")
        view = self._unpack(head, view)
        if content_checksum(view) != head.checksum:
            raise self._corrupt("frame with a wrong checksum")
        self._pending = None
        self._order.advance(head.type)
        return view

    def _flags(self, type: int) -> tuple[int, ...]:
        return (0, _PACKED) if self._packing and type == FrameType.BLOCK else (0,)

    def _unpack(self, head: FrameHead, view: memoryview) -> memoryview:
        """Only what the tag has shown to be the sender's is read."""
        if not head.packed or self._packing is None:
            return view
        try:
            return self._packing.unpack(head.part, view)
        except ValueError as error:
            raise self._corrupt(f"BLOCK frame with {error}") from error

    def _find_fault(self, head: FrameHead) -> str | None:
        if head.type is not FrameType.BLOCK:
            return self._find_control_fault(head)
        if head.part >= len(self._part_bytes):
            return f"with part {head.part} of {len(self._part_bytes)}"
        if not self._has_length(head):
            return f"of {head.length} bytes instead of {self._part_bytes[head.part]}"
        hashes = self._hashes
        if hashes is not None and (head.block >= len(hashes) or hashes[head.block] != head.hash):
            return "that was not asked for"
        return None

    def _has_length(self, head: FrameHead) -> bool:
        if head.packed and self._packing:
            return self._packing.fits(head.part, head.length)
        return head.length == self._part_bytes[head.part]

    def _find_control_fault(self, head: FrameHead) -> str | None:
        limit_bytes = 0 if head.type is FrameType.END else CONTROL_LIMIT_BYTES
        if head.length > limit_bytes:
            return f"of {head.length} bytes, more than {limit_bytes}"
        if head.part or head.block or head.hash != _NO_HASH:
            return "with a block's fields"
        return None

    def _corrupt(self, what: str) -> StreamCorrupt:
        self._broken = True
        return StreamCorrupt(self._peer, f"sent a {what}")


class _Tags:
    """AES-128 GMAC under a stream's key; OpenSSL computes it without holding up other threads."""

    def __init__(self, key: Secret) -> None:
        self._aes = AES(key.reveal()[:16])

    def compute(self, sequence: int, fields: bytes, payload: memoryview) -> bytes:
        encryptor = Cipher(self._aes, GCM(sequence.to_bytes(12, "little"))).encryptor()
        encryptor.authenticate_additional_data(fields)
        encryptor.authenticate_additional_data(payload)
        encryptor.finalize()
        return encryptor.tag


class _Order:
    """Which frame may come next."""

    def __init__(self) -> None:
        self.count = 0
        self.ended = False

    def fault(self, type: FrameType) -> str | None:
        """What is wrong with a frame of `type` now, or None."""
        if self.ended or self.count >= MOST_FRAMES:
            return "after the end"
        if type is not FrameType.ERROR and (type is FrameType.HEADER) != (self.count == 0):
            return "out of order"
        return None

    def advance(self, type: FrameType) -> None:
        self.count += 1
        self.ended = type in _LAST


__all__ = [
    "CONTROL_LIMIT_BYTES",
    "HEAD_BYTES",
    "MAGIC",
    "Direction",
    "FrameHead",
    "FrameReader",
    "FrameType",
    "FrameWriter",
    "stream_key",
]
