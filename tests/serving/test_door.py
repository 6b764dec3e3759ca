"""What a node says to those who knock wrongly, in bytes."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.secret import Secret
from kakeya_ops.serving import door
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.wire.bodies import ErrorBody, LookupRequest
from kakeya_ops.wire.cards import CardsExchange
from kakeya_ops.wire.signing import REPLY_HEADER, nonce_of, verify_reply
from serving.running import KEY, Served, make_cache, make_caller, simple_identity

CALLER = make_caller()
POSTS = ["/v1/cards", "/v1/kv/lookup", "/v1/kv/fetch", "/v1/prefill"]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(make_cache()) as served:
        yield served


class Reply:
    """One response, read whole."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = dict(response.getheaders())
        self.data = response.read()

    @property
    def error(self) -> ErrorBody:
        return ErrorBody.parse(self.data)


def send(served: Served, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        return Reply(connection.getresponse())
    finally:
        connection.close()


def ask(served: Served, path: str, body: bytes, method: str = "POST") -> Reply:
    """A request that is signed as it should be."""
    return send(served, method, path, body, CALLER.signer.sign(method, path, body, to="cache"))


def lookup(served: Served) -> bytes:
    return LookupRequest(identity=served.node.identity.digest, hashes=()).encode()


def test_a_signed_request_is_answered_with_a_signed_reply(served: Served) -> None:
    headers = CALLER.signer.sign("POST", "/v1/kv/lookup", lookup(served), to="cache")
    reply = send(served, "POST", "/v1/kv/lookup", lookup(served), headers)
    assert reply.status == 200
    verify_reply(KEY, nonce_of(headers), 200, reply.data, reply.headers[REPLY_HEADER.lower()])


def test_a_request_is_answered_once(served: Served) -> None:
    headers = CALLER.signer.sign("GET", "/v1/card", b"", to="cache")
    assert send(served, "GET", "/v1/card", headers=headers).status == 200
    replayed = send(served, "GET", "/v1/card", headers=headers)
    assert (replayed.status, replayed.error.code) == (401, "signature_rejected")
    assert "replayed" in replayed.error.message


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": "Kakeya node=a, tenant=b"},
        make_caller(key=Secret(b"another")).signer.sign("GET", "/v1/card", b"", to="cache"),
        make_caller(key=None).signer.sign("GET", "/v1/card", b"", to="cache"),
        CALLER.signer.sign("GET", "/v1/cards", b"", to="cache"),
        CALLER.signer.sign("POST", "/v1/card", b"", to="cache"),
        CALLER.signer.sign("GET", "/v1/card", b"x", to="cache"),
        CALLER.signer.sign("GET", "/v1/card", b"", to="another"),
    ],
    ids=[
        "none",
        "bearer",
        "half",
        "another key",
        "no key",
        "another path",
        "another method",
        "another body",
        "another node",
    ],
)
def test_strangers_are_refused(served: Served, headers: Mapping[str, str]) -> None:
    reply = send(served, "GET", "/v1/card", headers=headers)
    assert (reply.status, reply.error.code) == (401, "signature_rejected")


@pytest.mark.parametrize("path", ["/v1/card?x=1", "/v1/card?"])
def test_the_query_is_part_of_what_is_signed(served: Served, path: str) -> None:
    assert send(served, "GET", path, headers=CALLER.signer.sign("GET", "/v1/card", b"", to="cache")).status in (
        200,
        401,
    )
    signed = send(served, "GET", "/v1/card?x=1", headers=CALLER.signer.sign("GET", "/v1/card?x=1", b"", to="cache"))
    assert signed.status == 200
    moved = send(served, "GET", "/v1/card?x=2", headers=CALLER.signer.sign("GET", "/v1/card?x=1", b"", to="cache"))
    assert moved.status == 401


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 50_000, b'{"identity": 1}', b'{"cards": {}}', b"1e999", b'"' * 9],
    ids=["empty", "null", "list", "object", "no text", "deep", "number", "mapping", "infinite", "quotes"],
)
def test_bodies_that_are_wrong_are_refused_as_such(served: Served, path: str, body: bytes) -> None:
    reply = ask(served, path, body)
    assert (reply.status, reply.error.code) == (400, "invalid_request")
    assert REPLY_HEADER.lower() in reply.headers


@settings(max_examples=40, deadline=None)
@given(path=st.sampled_from(POSTS), body=st.binary(max_size=200))
def test_no_bytes_are_answered_with_a_failure_of_the_node(served: Served, path: str, body: bytes) -> None:
    reply = ask(served, path, body)
    assert reply.status in (200, 400, 409)
    assert b"Traceback" not in reply.data


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=40, deadline=None)
@given(field=st.sampled_from(sorted(make_cache().card().to_json())), value=JSON)
def test_a_card_with_any_value_anywhere_is_taken_or_refused(served: Served, field: str, value: object) -> None:
    card = make_cache("guest").card().to_json() | {field: value}
    reply = ask(served, "/v1/cards", json.dumps({"cards": [card]}).encode())
    assert reply.status in (200, 400)
    assert ask(served, "/v1/cards", CardsExchange(cards=()).encode()).status == 200


def announce(path: str, headers: Mapping[str, str], length: int, method: str = "POST") -> bytes:
    """The head of a request with a body of `length` bytes, none of which are in it."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {length}"]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


def forge(headers: Mapping[str, str]) -> Mapping[str, str]:
    """A header of the right form, with a MAC that nobody made."""
    said = headers["Authorization"].partition(", mac=")[0]
    return {"Authorization": f"{said}, mac={'0' * 64}"}


SIGNED = CALLER.signer.sign("POST", "/v1/prefill", b"", to="cache")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        make_caller(key=None).signer.sign("POST", "/v1/prefill", b"", to="cache"),
        make_caller(key=Secret(b"another")).signer.sign("POST", "/v1/prefill", b"", to="cache"),
        forge(SIGNED),
        CALLER.signer.sign("POST", "/v1/prefill", b"", to="another"),
        CALLER.signer.sign("POST", "/v1/prefill", None, to="cache"),
        {"Authorization": SIGNED["Authorization"].replace("to=cache, ", "")},
    ],
    ids=["nothing", "no key", "another key", "forged", "another node", "stream", "no node"],
)
@pytest.mark.parametrize("sent", [b"", bytes(100_000)], ids=["no byte", "a part"])
def test_a_stranger_is_refused_before_the_body_is_read(served: Served, headers: Mapping[str, str], sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(announce("/v1/prefill", headers, 2_000_000) + sent)
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_a_replayed_request_is_refused_before_the_body_is_read(served: Served) -> None:
    headers = CALLER.signer.sign("POST", "/v1/kv/lookup", lookup(served), to="cache")
    assert send(served, "POST", "/v1/kv/lookup", lookup(served), headers).status == 200
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(announce("/v1/kv/lookup", headers, len(lookup(served))))
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_a_body_other_than_the_signed_one_is_refused_with_a_signed_reply(served: Served) -> None:
    headers = CALLER.signer.sign("POST", "/v1/kv/lookup", lookup(served), to="cache")
    reply = send(served, "POST", "/v1/kv/lookup", lookup(served) + b" ", headers)
    assert (reply.status, reply.error.code) == (401, "signature_rejected")
    assert "wrong body" in reply.error.message
    verify_reply(KEY, nonce_of(headers), 401, reply.data, reply.headers[REPLY_HEADER.lower()])


def test_a_stream_is_taken_only_when_it_was_signed_as_one(served: Served) -> None:
    headers = CALLER.signer.sign("PUT", "/v1/kv/blocks", b"x", to="cache")
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(announce("/v1/kv/blocks", headers, 2_000_000, "PUT"))
        assert connection.recv(100).startswith(b"HTTP/1.1 401")


def test_a_body_that_announces_too_much_is_refused_before_it_is_read(served: Served) -> None:
    headers = CALLER.signer.sign("POST", "/v1/kv/lookup", b"", to="cache")
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        text = "\r\n".join(["POST /v1/kv/lookup HTTP/1.1", "Host: x", f"Content-Length: {10**11}", *lines, "", ""])
        connection.sendall(text.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_a_body_without_a_length_is_read_only_up_to_the_bound(served: Served) -> None:
    headers = CALLER.signer.sign("POST", "/v1/kv/lookup", b"", to="cache")
    lines = [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join(["POST /v1/kv/lookup HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", *lines, "", ""])
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(text.encode() + chunk * (LookupRequest.limit_bytes // 0x10000 + 2))
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("size", [1, 100_000, 900_000])
def test_a_stranger_who_sends_a_body_gets_the_whole_answer_and_no_reset(served: Served, size: int) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(announce("/v1/prefill", {}, size))
        assert connection.recv(100, socket.MSG_PEEK).startswith(b"HTTP/1.1 401")
        connection.sendall(bytes(size))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert ErrorBody.parse(answer.split(b"\r\n\r\n", 1)[1]).code == "signature_rejected"


def test_a_body_that_does_not_come_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "BODY_SECONDS", 0.05)
    headers = CALLER.signer.sign("POST", "/v1/kv/lookup", b"", to="cache")
    lines = [f"{name}: {value}" for name, value in headers.items()]
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        text = "\r\n".join(["POST /v1/kv/lookup HTTP/1.1", "Host: x", "Content-Length: 10", *lines, "", "half"])
        connection.sendall(text.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("GET", "/v1/prefill", 405), ("PUT", "/v1/card", 405)]
)
def test_what_does_not_exist_is_said_in_a_body_of_ours(served: Served, method: str, path: str, status: int) -> None:
    reply = send(served, method, path)
    assert (reply.status, reply.error.code) == (status, "invalid_request")


def test_a_mismatch_names_the_first_field_that_differs_when_the_caller_is_known(served: Served) -> None:
    other = make_cache("head", identity=simple_identity(weights="99" * 32))
    ask(served, "/v1/cards", CardsExchange(cards=(other.card(),)).encode())
    body = LookupRequest(identity=other.identity.digest, hashes=()).encode()
    reply = ask(served, "/v1/kv/lookup", body)
    assert (reply.status, reply.error.code, reply.error.field) == (409, "identity_mismatch", "weights")
    assert "99" * 32 in reply.error.message
    assert "11" * 32 in reply.error.message


def test_a_mismatch_with_a_card_whose_document_is_nonsense_is_a_mismatch(served: Served) -> None:
    nonsense = (
        make_cache("head")
        .card()
        .model_copy(update={"identity": "77" * 32, "identity_document": {"x": 1}, "issued_at": 2.0**52})
    )
    ask(served, "/v1/cards", CardsExchange(cards=(nonsense,)).encode())
    reply = ask(served, "/v1/kv/lookup", LookupRequest(identity="77" * 32, hashes=()).encode())
    assert (reply.status, reply.error.field) == (409, "identity")


def test_refusals_are_counted_by_their_codes(served: Served) -> None:
    counters = served.node.counters
    before = counters.value(CounterName.REQUESTS_REFUSED, reason="signature_rejected")
    send(served, "GET", "/v1/card")
    assert counters.value(CounterName.REQUESTS_REFUSED, reason="signature_rejected") == before + 1
