"""Signed requests to one peer, and replies and streams of which every byte is verified."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kakeya_ops.certificates import Certificates
from kakeya_ops.errors import InputError, PeerRefused, PeerUnreachable, SignatureRejected, StreamCorrupt
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.peer.connection import Answer, Call, Connections, Endpoint, StopFlag, Timeouts, translated
from kakeya_ops.peer.room import Room
from kakeya_ops.peer.stream import IncomingStream
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash, NodeId
from kakeya_ops.wire.bodies import ErrorBody, StreamHeader
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.frames import HEAD_BYTES, FrameReader, FrameType, FrameWriter, stream_key
from kakeya_ops.wire.packing import Packing
from kakeya_ops.wire.signing import REPLY_HEADER, NodeSigner, nonce_of, verify_reply
from kakeya_ops.wire.statuses import peer_error
from kakeya_ops.wire.version import check_wire

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SLICE_BYTES = 256 * 1024
"""Payloads are sent in slices, since a timeout counts for a whole send."""

R = TypeVar("R", bound=WireBody)


@dataclass(frozen=True)
class Caller:
    """This node, as it presents itself. `key` is the fleet's, None in an unsigned fleet on loopback; without
    `certificates` it reaches nothing that wants TLS. What its peers send is taken into `room`, whoever sends it."""

    node: NodeId
    epoch: int
    instance: str
    signer: NodeSigner
    key: Secret | None
    certificates: Certificates | None = None
    room: Room = field(default_factory=Room, compare=False)


@dataclass(frozen=True)
class Expected:
    """The blocks that a stream may bring: of that layout, with those hashes, and packed only where so asked for."""

    layout: KvLayout
    hashes: Sequence[BlockHash]
    packed: bool = False


class SignedCalls:
    """Thread-safe. Every method raises `PeerError` and nothing else, whatever the peer or the network does."""

    def __init__(self, node: NodeId, endpoint: Endpoint, caller: Caller, timeouts: Timeouts) -> None:
        self._node = node
        self._caller = caller
        self._timeouts = timeouts
        self._connections = Connections(node, endpoint, timeouts, caller.certificates)

    def ask(self, method: str, path: str, body: bytes, kind: type[R], stop: StopFlag) -> R:
        """The body of the reply."""
        return self._read_reply(self._call(method, path, body, self._timeouts.reply_seconds), kind, stop)

    @contextlib.contextmanager
    def stream(self, path: str, body: bytes, blocks: Expected, stop: StopFlag) -> Iterator[IncomingStream]:
        """The stream that answers a POST; only what is `Expected` is let through."""
        call = self._call("POST", path, body, self._timeouts.silence_seconds)
        with self._connections.call(call, stop) as answer:
            self._accept(answer, stop)
            key = stream_key(self._caller.key, "down", nonce_of(answer.sent))
            packing = Packing(blocks.layout) if blocks.packed else None
            reader = FrameReader(key, blocks.layout, hashes=blocks.hashes, peer=self._node, packing=packing)
            yield IncomingStream(self._node, answer.response, reader, stop, self._caller.room)

    def upload(
        self, path: str, identity: str, parts: Sequence[tuple[PartKey, StoredPart]], kind: type[R], stop: StopFlag
    ) -> R:
        """The body of the reply to a PUT of a stream of blocks."""
        caller = self._caller
        header = StreamHeader(
            node=caller.node, epoch=caller.epoch, instance=caller.instance, identity=identity
        ).encode()
        length = len(header) + sum(part.nbytes for _, part in parts) + HEAD_BYTES * (len(parts) + 2)

        def sign() -> Mapping[str, str]:
            signed = caller.signer.sign("PUT", path, None, to=self._node)
            return signed | {"Content-Type": "application/octet-stream", "Content-Length": str(length)}

        def body(headers: Mapping[str, str]) -> Iterable[Buffer]:
            return _encode_upload(FrameWriter(stream_key(caller.key, "up", nonce_of(headers))), header, parts)

        return self._read_reply(Call("PUT", path, sign, body, self._timeouts.stored_seconds), kind, stop)

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.close()

    def _call(self, method: str, path: str, body: bytes, wait_seconds: float) -> Call:
        def sign() -> Mapping[str, str]:
            signed = self._caller.signer.sign(method, path, body, to=self._node)
            return signed | ({"Content-Type": "application/json"} if body else {})

        return Call(method, path, sign, lambda headers: body, wait_seconds)

    def _read_reply(self, call: Call, kind: type[R], stop: StopFlag) -> R:
        with self._connections.call(call, stop) as answer:
            self._accept(answer, stop)
            data = self._read_body(answer, kind.limit_bytes, stop)
            self._verify(answer, data)
        try:
            return kind.parse(data)
        except InputError as error:
            raise StreamCorrupt(self._node, f"answered with no {kind.__name__}: {error.message}") from error

    def _accept(self, answer: Answer, stop: StopFlag) -> None:
        """Raise what the peer says is wrong, if it says so; an error without a signature is taken for what it is."""
        status = answer.response.status
        check_wire(self._node, dict(answer.response.getheaders()))
        if status == 200:
            return
        data = self._read_body(answer, ErrorBody.limit_bytes, stop)
        if answer.response.getheader(REPLY_HEADER):
            self._verify(answer, data)
        try:
            body = ErrorBody.parse(data)
        except InputError:
            raise PeerRefused(self._node, status, "unreadable", f"answered with HTTP status {status}") from None
        raise peer_error(self._node, status, body)

    def _read_body(self, answer: Answer, limit_bytes: int, stop: StopFlag) -> bytes:
        with translated(self._node, stop):
            data = answer.response.read(limit_bytes + 1)
            if answer.response.length and len(data) <= limit_bytes:
                raise PeerUnreachable(self._node, "the reply stopped before its end")
        if len(data) > limit_bytes:
            raise StreamCorrupt(self._node, f"answered with more than {limit_bytes} bytes")
        return data

    def _verify(self, answer: Answer, data: bytes) -> None:
        key, response = self._caller.key, answer.response
        if key is None:
            return
        mac = response.getheader(REPLY_HEADER)
        with rejection_translated(self._node):
            verify_reply(key, nonce_of(answer.sent), response.status, data, mac)


@contextlib.contextmanager
def rejection_translated(peer: str) -> Iterator[None]:
    """Turn `SignatureRejected` into `StreamCorrupt` of `peer`."""
    try:
        yield
    except SignatureRejected as error:
        raise StreamCorrupt(peer, error.message) from error


def _encode_upload(writer: FrameWriter, header: bytes, parts: Iterable[tuple[PartKey, StoredPart]]) -> Iterator[Buffer]:
    yield from writer.encode(FrameType.HEADER, header)
    for index, (key, part) in enumerate(parts):
        head, payload = writer.encode_block(key, index, part)
        yield head
        for start in range(0, len(payload), _SLICE_BYTES):
            yield payload[start : start + _SLICE_BYTES]
    yield from writer.encode(FrameType.END)


__all__ = ["Caller", "Expected", "SignedCalls", "rejection_translated"]
