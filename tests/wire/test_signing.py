from __future__ import annotations

import hashlib
import hmac
import json
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import InputError, SignatureRejected
from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import (
    DIRECTIVE_HEADER,
    MODES,
    REPLY_HEADER,
    REQUEST_HEADER,
    Directive,
    NodeSigner,
    NonceBook,
    RequestGate,
    SignedRequest,
    body_digest,
    encode_directive,
    new_nonce,
    nonce_of,
    sign_directive,
    sign_document,
    sign_reply,
    verify_body,
    verify_directive,
    verify_document,
    verify_reply,
    verify_request,
)

KEY, OTHER = Secret(bytes(range(32))), Secret(bytes(range(1, 33)))
NODE, WORKER = NodeId("head"), NodeId("worker")
NOW = 1_700_000_000.25
NONCE = "0123456789abcdef" * 2
BODY = b'{"cards":[]}'
PROMPT = body_digest(b'{"prompt":"x"}')


def sign(key: Secret | None = KEY, body: bytes | None = BODY, to: str = "worker", **options: Any) -> SignedRequest:
    signer = NodeSigner(NODE, key, "private fleet", lambda: NOW)
    return SignedRequest(signer.sign("POST", "/v1/cards?x=1", body, to=to, **options), "POST", "/v1/cards?x=1")


def gate_of(keys: list[Secret], *, node: NodeId = WORKER, allow_unsigned: bool = False) -> RequestGate:
    return RequestGate(keys, node, allow_unsigned=allow_unsigned)


def change(request: SignedRequest, old: str, new: str) -> SignedRequest:
    value = request.headers[REQUEST_HEADER]
    assert old in value
    return SignedRequest({REQUEST_HEADER: value.replace(old, new)}, request.method, request.path, request.streamed)


def reject(request: SignedRequest, gate: RequestGate, reason: str, now: float = NOW) -> None:
    with pytest.raises(SignatureRejected, match=reason):
        verify_request(request, gate, now)


def test_the_header_is_what_the_document_says() -> None:
    value = sign(nonce=NONCE).headers[REQUEST_HEADER]
    said = f"Kakeya node=head, tenant=private%20fleet, to=worker, time=1700000000.250000, nonce={NONCE}"
    said += f", body={hashlib.sha256(BODY).hexdigest()}"
    text = f"kakeya-request-1\nPOST\n/v1/cards?x=1\n{said}"
    request_key = hmac.new(KEY.reveal(), b"kakeya:request", hashlib.sha256).digest()
    assert value == f"{said}, mac={hmac.new(request_key, text.encode(), hashlib.sha256).hexdigest()}"


def test_a_signed_request_tells_its_caller() -> None:
    request = sign(nonce=NONCE)
    caller = verify_request(request, gate_of([KEY]), NOW + 59)
    assert (caller.node, caller.tenant, caller.nonce, caller.key) == (NODE, "private fleet", NONCE, KEY)
    assert nonce_of(request.headers) == NONCE


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_any_names_arrive_as_they_were(node: str, tenant: str) -> None:
    headers = NodeSigner(NodeId(node), KEY, tenant, lambda: NOW).sign("GET", "/", b"", to=WORKER)
    assert headers[REQUEST_HEADER].isascii()
    caller = verify_request(SignedRequest(headers, "GET", "/"), gate_of([KEY]), NOW)
    assert (caller.node, caller.tenant) == (node, tenant)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_a_name_that_cannot_be_sent_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        NodeSigner(NodeId(name), KEY, "tenant", lambda: NOW)


def test_headers_are_found_in_any_case() -> None:
    request = sign()
    lower = {name.lower(): value for name, value in request.headers.items()}
    verify_request(SignedRequest(lower, request.method, request.path), gate_of([KEY]), NOW)


@pytest.mark.parametrize(
    "request_",
    [
        SignedRequest(sign().headers, "PUT", "/v1/cards?x=1"),
        SignedRequest(sign().headers, "POST", "/v1/cards"),
        change(sign(), body_digest(BODY), body_digest(BODY + b" ")),
        change(sign(), body_digest(BODY), "stream"),
        change(sign(), f", body={body_digest(BODY)}", ""),
        change(sign(), "node=head", "node=other"),
        change(sign(), "tenant=private", "tenant=public"),
        change(sign(), "to=worker", "to=cache"),
        change(sign(), ", to=worker", ""),
        change(sign(), "time=17000000", "time=17000001"),
        change(sign(nonce=NONCE), "nonce=0", "nonce=1"),
        change(sign(), "mac=", "mac=0"),
        sign(OTHER),
    ],
)
def test_whatever_is_changed_the_request_is_refused(request_: SignedRequest) -> None:
    gate = gate_of([KEY])
    reject(request_, gate, "wrong key|malformed")
    assert len(gate.nonces) == 0


def test_a_request_is_accepted_once() -> None:
    request, gate = sign(), gate_of([KEY])
    verify_request(request, gate, NOW)
    reject(request, gate, "replayed")


@pytest.mark.parametrize("late_seconds", [-61, 61])
def test_an_old_request_is_refused(late_seconds: float) -> None:
    reject(sign(), gate_of([KEY]), "stale", NOW + late_seconds)


def test_a_request_for_another_node_is_refused_and_not_remembered() -> None:
    request = sign(to="worker one")
    gate = gate_of([KEY], node=NodeId("worker two"))
    reject(request, gate, "wrong node")
    assert len(gate.nonces) == 0
    verify_request(request, gate_of([KEY], node=NodeId("worker one")), NOW)


def test_a_stream_is_taken_only_where_one_is_wanted_and_only_there() -> None:
    gate = gate_of([KEY])
    small, stream = sign(), sign(body=None)
    reject(stream, gate, "wrong body")
    reject(replace(small, streamed=True), gate, "wrong body")
    assert len(gate.nonces) == 0
    verify_request(small, gate, NOW)
    verify_request(replace(stream, streamed=True), gate, NOW)


def test_a_body_is_the_one_that_was_signed() -> None:
    verify_body(sign().headers, BODY)
    for headers, body in [(sign().headers, BODY + b" "), (sign().headers, b""), (sign(body=None).headers, b"stream")]:
        with pytest.raises(SignatureRejected, match="wrong body"):
            verify_body(headers, body)


def test_both_keys_are_accepted_while_one_replaces_the_other() -> None:
    gate = gate_of([OTHER, KEY])
    assert verify_request(sign(KEY), gate, NOW).key == KEY
    assert verify_request(sign(OTHER), gate, NOW).key == OTHER


def test_an_unsigned_request_is_let_in_only_where_that_is_allowed_and_there_is_no_key() -> None:
    assert verify_request(sign(None), gate_of([], allow_unsigned=True), NOW).key is None
    reject(sign(None), gate_of([]), "missing")
    reject(sign(None), gate_of([KEY], allow_unsigned=True), "missing")
    reject(sign(KEY), gate_of([], allow_unsigned=True), "wrong key")


def test_a_request_without_the_header_is_refused() -> None:
    reject(SignedRequest({"Accept": "*/*"}, "GET", "/"), gate_of([], allow_unsigned=True), "missing")


VALID = sign(nonce=NONCE).headers[REQUEST_HEADER]
HEADERS = st.text() | st.builds(
    lambda start, end, middle: VALID[:start] + middle + VALID[end:],
    st.integers(0, len(VALID)),
    st.integers(0, len(VALID)),
    st.text(string.printable, max_size=5),
)


@given(HEADERS.filter(lambda value: value != VALID))
def test_hostile_headers_are_refused_and_nothing_else_happens(value: str) -> None:
    gate = gate_of([KEY])
    reject(SignedRequest({REQUEST_HEADER: value}, "POST", "/v1/cards?x=1"), gate, "malformed|wrong key")
    assert len(gate.nonces) == 0


def test_a_reply_belongs_to_its_request() -> None:
    mac = sign_reply(KEY, NONCE, 200, BODY)
    verify_reply(KEY, NONCE, 200, BODY, mac)
    for arguments in [
        (OTHER, NONCE, 200, BODY, mac),
        (KEY, new_nonce(), 200, BODY, mac),
        (KEY, NONCE, 503, BODY, mac),
        (KEY, NONCE, 200, b"", mac),
        (KEY, NONCE, 200, BODY, mac[:-1]),
        (KEY, NONCE, 200, BODY, "\u00e9"),
        (KEY, NONCE, 200, BODY, None),
    ]:
        with pytest.raises(SignatureRejected, match=r"^reply rejected"):
            verify_reply(*arguments)


@pytest.mark.parametrize(
    "modes", [{"remote"}, {"local"}, {"skip-local-pool"}, {"remote", "skip-local-pool"}, {"local", "skip-local-pool"}]
)
def test_a_directive_says_its_modes_and_nonce(modes: set[str]) -> None:
    value = sign_directive(KEY, frozenset(modes), NONCE, PROMPT, NOW)
    assert verify_directive(value, [OTHER, KEY], NonceBook(), PROMPT, NOW) == Directive(frozenset(modes), NONCE)


@pytest.mark.parametrize("node", ["worker", "Mac; mode=local", "büro/mac %"])
def test_a_directive_may_name_the_one_node_to_be_asked(node: str) -> None:
    directive = Directive(frozenset({"remote"}), NONCE, NodeId(node))
    value = encode_directive(KEY, directive, PROMPT, NOW)
    assert verify_directive(value, [KEY], NonceBook(), PROMPT, NOW) == directive
    reject_directive(value.replace("; node=", "; node=x"), "wrong key", [KEY])


def test_a_directive_for_no_name_is_not_signed() -> None:
    with pytest.raises(InputError):
        encode_directive(KEY, Directive(frozenset({"remote"}), NONCE, NodeId("")), PROMPT, NOW)


@pytest.mark.parametrize("modes", [set(), {"remote", "local"}, {"fast"}, MODES])
def test_a_directive_without_sense_is_not_signed(modes: set[str]) -> None:
    with pytest.raises(InputError):
        sign_directive(KEY, frozenset(modes), NONCE, PROMPT, NOW)


def reject_directive(value: str, reason: str, keys: list[Secret], digest: str = PROMPT, now: float = NOW) -> None:
    with pytest.raises(SignatureRejected, match=reason):
        verify_directive(value, keys, NonceBook(), digest, now)


def test_a_directive_holds_for_one_body_one_fleet_and_a_minute() -> None:
    value = sign_directive(KEY, frozenset({"local"}), NONCE, PROMPT, NOW)
    reject_directive(value, "wrong key", [KEY], body_digest(b"other"))
    reject_directive(value, "wrong key", [OTHER])
    reject_directive(value, "wrong key", [])
    reject_directive(value, "stale", [KEY], now=NOW + 61)
    reject_directive(value.replace("local", "remote"), "wrong key", [KEY])
    reject_directive(value.replace(NONCE, NONCE[::-1]), "wrong key", [KEY])
    reject_directive(value.replace("local", "local+remote"), "malformed", [KEY])
    reject_directive("", "malformed", [KEY])


def test_a_directive_is_good_once_but_its_nonce_may_be_used_for_several() -> None:
    book = NonceBook()
    cold = sign_directive(KEY, frozenset({"remote"}), NONCE, PROMPT, NOW)
    again = sign_directive(KEY, frozenset({"local"}), NONCE, PROMPT, NOW)
    verify_directive(cold, [KEY], book, PROMPT, NOW)
    verify_directive(again, [KEY], book, PROMPT, NOW)
    with pytest.raises(SignatureRejected, match="replayed"):
        verify_directive(cold, [KEY], book, PROMPT, NOW)


@given(st.text())
def test_hostile_directives_are_refused(value: str) -> None:
    reject_directive(value, "malformed", [KEY])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text(max_size=3), JSON, max_size=4)


@given(DOCUMENTS, DOCUMENTS)
def test_a_document_is_its_json_and_nothing_else_is_it(document: dict[str, Any], other: dict[str, Any]) -> None:
    mac = sign_document(KEY, "receipt", document)
    sent = json.loads(json.dumps(dict(reversed(document.items())) | {"mac": mac}))
    verify_document([OTHER, KEY], "receipt", sent, mac)
    if json.dumps(other, sort_keys=True) != json.dumps(document, sort_keys=True) and "mac" not in other:
        with pytest.raises(SignatureRejected, match=r"^receipt rejected: wrong key"):
            verify_document([KEY], "receipt", other, mac)


@pytest.mark.parametrize(("keys", "purpose", "document"), [([OTHER], "a", {}), ([], "a", {}), ([KEY], "b", {})])
def test_a_document_under_another_key_or_for_another_purpose_is_refused(
    keys: list[Secret], purpose: str, document: dict[str, Any]
) -> None:
    with pytest.raises(SignatureRejected, match="wrong key"):
        verify_document(keys, purpose, document, sign_document(KEY, "a", document))


@pytest.mark.parametrize("value", [float("nan"), b"bytes", {1: 2, "1": 3}])
def test_a_document_that_is_not_plain_json_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        sign_document(KEY, "a", {"value": value})
    with pytest.raises(SignatureRejected, match="malformed"):
        verify_document([KEY], "a", {"value": value}, "0" * 64)


@pytest.mark.parametrize("mac", ["", "0" * 64, "\ud800"])
def test_a_forged_mac_of_a_document_is_refused(mac: str) -> None:
    with pytest.raises(SignatureRejected):
        verify_document([KEY], "a", {}, mac)


def test_each_purpose_has_a_key_of_its_own() -> None:
    assert len({KEY.derive(name).reveal() for name in ("request", "reply", "directive", "document:a")}) == 4
    assert len({REQUEST_HEADER, REPLY_HEADER, DIRECTIVE_HEADER}) == 3
