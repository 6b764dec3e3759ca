"""What a drill's fault makes of a stream of frames. Pure: frames in, bytes and orders to the sender out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.bodies import ErrorBody, Progress, StreamHeader, WorkerReceipt
from kakeya_ops.wire.drills import Act, At, Fault
from kakeya_ops.wire.frames import HEAD_BYTES, FrameHead, FrameType, FrameWriter
from kakeya_ops.wire.signing import new_nonce

_LENGTH_AT = slice(16, 20)
"""Where a head says how long its payload is."""
_HASH_AT = 20
_SLICE_BYTES = 16 * 1024
_WORD_SECONDS = 1.0
"""Between two words of a worker that is late."""
STRANGER = Secret(b"the key of another fleet, 32 byte")
"""A key that is nobody's."""


@dataclass(frozen=True)
class Wait:
    """Send nothing for so long."""

    seconds: float


@dataclass(frozen=True)
class Freeze:
    """Let the whole process stand still for so long."""

    seconds: float


class HangUp:
    """Break the connection."""


class Die:
    """End the process."""


Step = bytes | Wait | Freeze | HangUp | Die


class SentFrame(NamedTuple):
    """A frame as the node made it: its head, that head's bytes, and the payload as it travels, packed or not."""

    head: FrameHead
    head_bytes: bytes
    payload: bytes

    @property
    def raw(self) -> bytes:
        """All of it."""
        return self.head_bytes + self.payload


class Spoiler:
    """Spoils one stream of `blocks` block frames, whose frames have tags under `tag_key`; receipts are signed with
    `receipt_key`. For one stream.
    """

    def __init__(self, fault: Fault, blocks: int, tag_key: Secret, receipt_key: Secret | None) -> None:
        self._fault = fault
        self._target = _place(fault.at, blocks)
        self._writer = FrameWriter(tag_key)
        self._receipt_key = receipt_key
        self._seen = -1
        self._held = b""
        self._over = False

    def spoil(self, frame: SentFrame) -> Iterator[Step]:
        """What is to be done instead of sending `frame`."""
        is_block = frame.head.type is FrameType.BLOCK
        self._seen += is_block
        act = self._fault.act
        if self._over:
            return
        if act is Act.SLOW:
            yield from self._slowly(frame.raw)
        elif act in _REWRITES:
            yield from self._rewrite(frame, hit=is_block and self._seen == self._target)
        elif is_block and self._seen == self._target:
            yield from _SPOILS[act](self, frame)
        else:
            yield frame.raw + self._release()

    def _slowly(self, data: bytes) -> Iterator[Step]:
        for start in range(0, len(data), _SLICE_BYTES):
            piece = data[start : start + _SLICE_BYTES]
            yield piece
            yield Wait(len(piece) / self._fault.bytes_per_second)

    def _release(self) -> bytes:
        held, self._held = self._held, b""
        return held

    def _cut(self, frame: SentFrame) -> Iterator[Step]:
        yield frame.raw[: len(frame.raw) // 2]
        yield HangUp()

    def _stall(self, frame: SentFrame) -> Iterator[Step]:
        yield frame.raw[: len(frame.raw) // 2]
        yield Wait(self._fault.seconds)
        yield HangUp()

    def _die(self, frame: SentFrame) -> Iterator[Step]:
        yield frame.raw[: len(frame.raw) // 2]
        yield Die()

    def _pause(self, frame: SentFrame) -> Iterator[Step]:
        yield Freeze(self._fault.seconds)
        yield frame.raw

    def _swap(self, frame: SentFrame) -> Iterator[Step]:
        self._held = frame.raw
        return iter(())

    def _rewrite(self, frame: SentFrame, *, hit: bool) -> Iterator[Step]:
        """The frame with a tag of its own making, so that what is wrong is what it says."""
        if hit and self._fault.act is Act.LATE:
            yield from self._say_that_it_computes()
        changed = _REWRITES[self._fault.act](self, frame, hit)
        if changed is None:
            return
        head, payload = changed
        if head.type is FrameType.BLOCK:
            # What the checksum is of may be larger than what travels.
            stored, packed = StoredPart(data := memoryview(payload), head.checksum), data if head.packed else None
            encoded = self._writer.encode_block(head.key, head.block, stored, packed)
        else:
            encoded = self._writer.encode(head.type, payload)
        self._over = head.type is FrameType.ERROR
        yield encoded[0] + bytes(encoded[1])

    def _say_that_it_computes(self) -> Iterator[Step]:
        """As a worker does while it has no block to send."""
        for _ in range(int(self._fault.seconds / _WORD_SECONDS)):
            yield Wait(_WORD_SECONDS)
            head, payload = self._writer.encode(FrameType.PROGRESS, Progress(stage="computing").encode())
            yield head + bytes(payload)

    def _unchanged(self, frame: SentFrame, hit: bool) -> _Changed:
        return frame.head, frame.payload

    def _foreign(self, frame: SentFrame, hit: bool) -> _Changed:
        other = BlockHash(hashlib.sha256(frame.head.hash).digest())
        return (frame.head._replace(hash=other) if hit else frame.head), frame.payload

    def _fail(self, frame: SentFrame, hit: bool) -> _Changed:
        body = ErrorBody(code="engine_dead", message="a drill says that the engine has stopped")
        return (frame.head._replace(type=FrameType.ERROR), body.encode()) if hit else (frame.head, frame.payload)

    def _drop_receipt(self, frame: SentFrame, hit: bool) -> _Changed:
        return None if frame.head.type is FrameType.RECEIPT else (frame.head, frame.payload)

    def _truncate_receipt(self, frame: SentFrame, hit: bool) -> _Changed:
        cut = len(frame.payload) // 2 if frame.head.type is FrameType.RECEIPT else None
        return frame.head, frame.payload[:cut]

    def _other_header(self, frame: SentFrame, hit: bool) -> _Changed:
        if frame.head.type is not FrameType.HEADER:
            return frame.head, frame.payload
        header = StreamHeader.parse(frame.payload).model_copy(update={"identity": "00" * 32})
        return frame.head, header.encode()

    def _change_receipt(self, frame: SentFrame, hit: bool) -> _Changed:
        if frame.head.type is not FrameType.RECEIPT:
            return frame.head, frame.payload
        receipt = WorkerReceipt.parse(frame.payload)
        if self._fault.act is Act.FORGED_RECEIPT:
            return frame.head, receipt.sign(STRANGER).encode()
        if self._fault.act is Act.CHANGED_RECEIPT:
            return frame.head, receipt.model_copy(update={"computed_tokens": receipt.computed_tokens + 1}).encode()
        other = {"request_nonce": new_nonce()} if self._fault.act is Act.OTHER_RECEIPT else {"blocks_digest": "00" * 32}
        return frame.head, receipt.model_copy(update=other).sign(self._receipt_key).encode()


_Changed = tuple[FrameHead, bytes] | None


def _place(at: At, blocks: int) -> int:
    return {"first": 0, "middle": blocks // 2, "last": blocks - 1}[at]


def _flipped(raw: bytes, at: int) -> Iterator[Step]:
    spoilt = bytearray(raw)
    spoilt[at] ^= 1
    yield bytes(spoilt)


def _oversized(spoiler: Spoiler, frame: SentFrame) -> Iterator[Step]:
    spoilt = bytearray(frame.raw)
    spoilt[_LENGTH_AT] = b"\xff\xff\xff\x7f"
    yield bytes(spoilt)


def _garbage(spoiler: Spoiler, frame: SentFrame) -> Iterator[Step]:
    yield hashlib.shake_128(frame.head_bytes).digest(len(frame.raw))


_SPOILS: dict[Act, Callable[[Spoiler, SentFrame], Iterator[Step]]] = {
    Act.CUT: Spoiler._cut,
    Act.STALL: Spoiler._stall,
    Act.DIE: Spoiler._die,
    Act.PAUSE: Spoiler._pause,
    Act.SWAP: Spoiler._swap,
    Act.FLIP: lambda spoiler, frame: _flipped(frame.raw, HEAD_BYTES + len(frame.payload) // 2),
    Act.FLIP_HEAD: lambda spoiler, frame: _flipped(frame.raw, _HASH_AT),
    Act.GARBAGE: _garbage,
    Act.OVERSIZE: _oversized,
    Act.REPEAT: lambda spoiler, frame: iter((frame.raw, frame.raw)),
    Act.DROP: lambda spoiler, frame: iter(()),
}
"""Faults of the one frame that is aimed at."""

_REWRITES: dict[Act, Callable[[Spoiler, SentFrame, bool], _Changed]] = {
    Act.LATE: Spoiler._unchanged,
    Act.FOREIGN: Spoiler._foreign,
    Act.ERROR: Spoiler._fail,
    Act.OTHER_HEADER: Spoiler._other_header,
    Act.NO_RECEIPT: Spoiler._drop_receipt,
    Act.TRUNCATED_RECEIPT: Spoiler._truncate_receipt,
    Act.FORGED_RECEIPT: Spoiler._change_receipt,
    Act.CHANGED_RECEIPT: Spoiler._change_receipt,
    Act.OTHER_RECEIPT: Spoiler._change_receipt,
    Act.WRONG_RECEIPT: Spoiler._change_receipt,
}
"""Faults of what a frame says, under a valid tag."""

__all__ = ["STRANGER", "Die", "Freeze", "HangUp", "SentFrame", "Spoiler", "Step", "Wait"]
