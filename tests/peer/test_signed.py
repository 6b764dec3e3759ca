from __future__ import annotations

import pytest

from kakeya_ops.errors import PeerBusy, PeerRefused, PeerUnreachable, SignatureRejected, StreamCorrupt
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.connection import DEFAULT_TIMEOUTS, StopFlag
from kakeya_ops.peer.signed import SignedCalls, rejection_translated
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash, NodeId
from kakeya_ops.wire.bodies import ErrorBody, LookupReply
from kakeya_ops.wire.frames import HEAD_BYTES, FrameReader, FrameType, stream_key
from kakeya_ops.wire.signing import (
    REPLY_HEADER,
    RequestGate,
    SignedRequest,
    nonce_of,
    sign_reply,
    verify_body,
    verify_request,
)
from peer.scripted import Request, Script, ScriptedPeer, response
from serving.running import KEY, make_caller, payload, simple_layout

REPLY = LookupReply(resume_blocks=1, parts_held=2)
BUSY = ErrorBody(code="engine_busy", message="full", retry_after_seconds=2.0)


def signed(body: bytes, *, status: str = "200 OK", key: Secret = KEY, nonce: str | None = None) -> Script:
    def script(request: Request) -> bytes:
        mac = sign_reply(key, nonce or nonce_of(request.headers), int(status.split()[0]), body)
        return response(body, status=status, **{REPLY_HEADER.replace("-", "_"): mac})

    return script


def ask(peer: ScriptedPeer, key: Secret | None = KEY) -> LookupReply:
    calls = SignedCalls(NodeId("peer"), peer.endpoint, make_caller(key=key), DEFAULT_TIMEOUTS)
    try:
        return calls.ask("POST", "/v1/x", b"body", LookupReply, StopFlag())
    finally:
        calls.close()


def test_a_signed_request_gets_its_signed_reply() -> None:
    with ScriptedPeer(signed(REPLY.encode())) as peer:
        assert ask(peer) == REPLY
        (request,) = peer.requests
    gate = RequestGate([KEY], NodeId("peer"))
    now = float(request.headers["Authorization"].partition("time=")[2].partition(",")[0])
    caller = verify_request(SignedRequest(request.headers, "POST", "/v1/x"), gate, now)
    verify_body(request.headers, request.body)
    assert caller.node == "head"


@pytest.mark.parametrize(
    "script",
    [
        lambda request: response(REPLY.encode()),
        signed(REPLY.encode(), key=Secret(b"another")),
        signed(REPLY.encode(), nonce="0" * 32),
        lambda request: response(REPLY.encode(), X_Kakeya_Reply_Mac="nonsense"),
    ],
    ids=["unsigned", "another key", "another request", "malformed"],
)
def test_a_reply_that_the_peer_did_not_sign_for_this_request_is_corrupt(script: Script) -> None:
    with ScriptedPeer(script) as peer, pytest.raises(StreamCorrupt):
        ask(peer)


def test_an_error_is_verified_when_it_is_signed() -> None:
    with ScriptedPeer(signed(BUSY.encode(), status="503 Busy")) as peer, pytest.raises(PeerBusy) as caught:
        ask(peer)
    assert caught.value.retry_after_seconds == 2.0
    forged = signed(BUSY.encode(), status="503 Busy", key=Secret(b"another"))
    with ScriptedPeer(forged) as peer, pytest.raises(StreamCorrupt):
        ask(peer)


def test_an_error_without_a_body_of_ours_is_a_refusal() -> None:
    page = response(b"<html>Service Unavailable", status="503 No")
    with ScriptedPeer(lambda request: page) as peer, pytest.raises(PeerRefused) as caught:
        ask(peer)
    assert (caught.value.status, caught.value.code) == (503, "unreadable")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"resume_blocks": "1"}', b"{" * 5000, b"\xff\xfe"])
def test_a_reply_of_the_wrong_form_is_corrupt(body: bytes) -> None:
    with ScriptedPeer(signed(body)) as peer, pytest.raises(StreamCorrupt):
        ask(peer)


def test_a_reply_is_not_read_beyond_its_bound() -> None:
    huge = f"HTTP/1.1 200 OK\r\nContent-Length: {2**40}\r\n\r\n".encode() + bytes(LookupReply.limit_bytes + 1)
    with ScriptedPeer(lambda request: huge) as peer, pytest.raises(StreamCorrupt, match="more than"):
        ask(peer)


def test_a_reply_that_stops_is_unreachable() -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    with ScriptedPeer(lambda request: short, closes=1) as peer, pytest.raises(PeerUnreachable):
        ask(peer)


def test_without_a_key_nothing_is_verified() -> None:
    with ScriptedPeer(lambda request: response(REPLY.encode())) as peer:
        assert ask(peer, key=None) == REPLY


def test_an_upload_is_a_signed_stream_of_exactly_the_announced_length() -> None:
    layout = simple_layout(row_bytes=8192)
    parts = [(PartKey(BlockHash(bytes(31) + b"1"), part), payload(layout, part, 1)) for part in (0, 1)]
    with ScriptedPeer(signed(REPLY.encode())) as peer:
        calls = SignedCalls(NodeId("peer"), peer.endpoint, make_caller(), DEFAULT_TIMEOUTS)
        assert calls.upload("/v1/y", "0" * 64, parts, LookupReply, StopFlag()) == REPLY
        (request,) = peer.requests
        calls.close()
    gate = RequestGate([KEY], NodeId("peer"))
    now = float(request.headers["Authorization"].partition("time=")[2].partition(",")[0])
    verify_request(SignedRequest(request.headers, "PUT", "/v1/y", streamed=True), gate, now)
    reader = FrameReader(stream_key(KEY, "up", nonce_of(request.headers)), layout)
    types, rest = [], request.body
    while rest:
        head = reader.parse_head(rest[:HEAD_BYTES])
        reader.check(head, rest[HEAD_BYTES : HEAD_BYTES + head.length])
        types.append(head.type)
        rest = rest[HEAD_BYTES + head.length :]
    assert types == [FrameType.HEADER, FrameType.BLOCK, FrameType.BLOCK, FrameType.END]


def test_a_rejection_is_the_peers_fault() -> None:
    with pytest.raises(StreamCorrupt, match=r"peer: .*stale"), rejection_translated("peer"):
        raise SignatureRejected("receipt rejected: stale")
