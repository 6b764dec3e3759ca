"""Who said it, that it was not changed, and that it is not said again.

Requests, replies, directives and receipts carry an HMAC-SHA-256 under keys derived from the fleet key, one purpose
each. Nothing here reads a clock or a socket. ``docs/wire.md`` has the exact bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from kakeya_ops.errors import InputError, SignatureRejected
from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.wire.nonces import NonceBook
from kakeya_ops.wire.version import check_wire, wire_headers

REQUEST_HEADER = "Authorization"
REPLY_HEADER = "X-Kakeya-Reply-Mac"
DIRECTIVE_HEADER = "X-Kakeya-Directive"
MODES = frozenset({"remote", "local", "skip-local-pool"})
"""What a directive may ask: see `Directive`."""

_NAME = r"[A-Za-z0-9._~%-]{1,256}"
_TIME = r"\d{1,11}\.\d{6}"
_NONCE = r"[0-9a-f]{32}"
_MAC = r"[0-9a-f]{64}"
_STREAM = "stream"
"""Said in place of a digest, of a body that is a stream of frames, each with a tag of its own."""
_REQUEST = re.compile(
    rf"Kakeya node=(?P<node>{_NAME}), tenant=(?P<tenant>{_NAME}), to=(?P<to>{_NAME}), "
    rf"time=(?P<time>{_TIME}), nonce=(?P<nonce>{_NONCE}), body=(?P<body>{_MAC}|{_STREAM})(?:, mac=(?P<mac>{_MAC}))?",
    re.ASCII,
)
_DIRECTIVE = re.compile(
    rf"mode=(?P<mode>[a-z+-]{{1,64}})(?:; node=(?P<node>{_NAME}))?; "
    rf"nonce=(?P<nonce>{_NONCE}); time=(?P<time>{_TIME}); mac=(?P<mac>{_MAC})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The head of a request as it came in: `path` is the target of the request line, with its query.

    `streamed` is whether the path is one that takes a stream of frames.
    """

    headers: Mapping[str, str]
    method: str
    path: str
    streamed: bool = False


@dataclass(frozen=True)
class RequestGate:
    """What a server lets in.

    `keys` are the fleet's, newest first (two while a key is being replaced). A request addressed to a node other than
    `node` is refused. `allow_unsigned` admits requests without a MAC, and is for a fleet on loopback without any key.
    """

    keys: Sequence[Secret]
    node: NodeId
    allow_unsigned: bool = False
    nonces: NonceBook = field(default_factory=NonceBook)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a verified request; `key` is the fleet key it was signed with, for the reply and the stream."""

    node: NodeId
    tenant: str
    nonce: str
    key: Secret | None


@dataclass(frozen=True, slots=True)
class Directive:
    """What the holder of the fleet key asks about one prompt's prefix.

    ``remote``: it must be computed by, or imported from, another node; ``local``: the head computes it itself and
    reads no pool; ``skip-local-pool``: the head's own pool is not read, other nodes may help. With a `node`, no other
    one is asked.
    """

    modes: frozenset[str]
    nonce: str
    node: NodeId | None = None


class NodeSigner:
    """Signs what one node sends, in the name of one tenant. Without a fleet key it only says who it is."""

    def __init__(self, node: NodeId, fleet_key: Secret | None, tenant: str, clock: Callable[[], float]) -> None:
        self._names = f"Kakeya node={_quote_name(node)}, tenant={_quote_name(tenant)}"
        self._key = fleet_key
        self._clock = clock

    def sign(self, method: str, path: str, body: bytes | None, *, to: str, nonce: str | None = None) -> dict[str, str]:
        """The headers of one request; `body` is None for a stream of frames.

        Every node but the one it is addressed `to` refuses it. Give a `nonce` of `new_nonce` to know it beforehand.
        """
        digest = _STREAM if body is None else body_digest(body)
        said = f"{self._names}, to={_quote_name(to)}, time={self._clock():.6f}, nonce={nonce or new_nonce()}"
        said += f", body={digest}"
        mac = "" if self._key is None else f", mac={_request_mac(self._key, said, method, path)}"
        return {REQUEST_HEADER: said + mac} | wire_headers()


def new_nonce() -> str:
    """Sixteen random bytes in hexadecimal, to be used once."""
    return secrets.token_hex(16)


def nonce_of(headers: Mapping[str, str]) -> str:
    """The nonce in the headers that `NodeSigner.sign` made. Raises `SignatureRejected` for any others."""
    return _parse_request(headers)["nonce"]


def verify_request(request: SignedRequest, gate: RequestGate, now: float) -> Caller:
    """Who sent `request`, at Unix time `now`. No body is needed for that: `verify_body` checks it once it is read.

    Raises `ReleaseMismatch` for another wire version, and `SignatureRejected` with one of the reasons missing,
    malformed, wrong key, wrong node, wrong body, stale, replayed, or too many nonces. A nonce is remembered only after
    everything else holds, so that strangers cannot fill the book.
    """
    check_wire("the caller", request.headers)
    said = _parse_request(request.headers)
    key = _find_request_key(request, said, gate)
    if unquote(said["to"]) != gate.node:
        raise _rejected("request", "wrong node")
    if (said["body"] == _STREAM) != request.streamed:
        raise _rejected("request", "wrong body")
    gate.nonces.admit(said["nonce"], float(said["time"]), now)
    return Caller(NodeId(unquote(said["node"])), unquote(said["tenant"]), said["nonce"], key)


def verify_body(headers: Mapping[str, str], body: bytes) -> None:
    """Raise `SignatureRejected` unless `body` is the one that the `headers` of a verified request tell."""
    if not _same(body_digest(body), _parse_request(headers)["body"]):
        raise _rejected("request", "wrong body")


def sign_reply(key: Secret, request_nonce: str, status: int, body: bytes) -> str:
    """The value of `REPLY_HEADER` for the reply to the request with `request_nonce`."""
    text = f"kakeya-reply-1\n{request_nonce}\n{status}\n{body_digest(body)}"
    return _mac(key, "reply", text)


def verify_reply(key: Secret, request_nonce: str, status: int, body: bytes, mac: str | None) -> None:
    """Raise `SignatureRejected` unless `mac` is what `sign_reply` gives for the same reply."""
    if mac is None:
        raise _rejected("reply", "missing")
    if not _same(mac, sign_reply(key, request_nonce, status, body)):
        raise _rejected("reply", "wrong key")


def sign_directive(key: Secret, modes: frozenset[str], nonce: str, body_digest: str, now: float) -> str:
    """The value of `DIRECTIVE_HEADER` for the one request whose body has `body_digest`, sent within the window.

    Raises `InputError` for modes that are unknown, none, or contradict each other.
    """
    return encode_directive(key, Directive(modes, nonce), body_digest, now)


def encode_directive(key: Secret, directive: Directive, body_digest: str, now: float) -> str:
    """The same for a whole `directive`. Raises `InputError` also for a `node` that cannot be a name."""
    modes = "+".join(sorted(directive.modes))
    if not _sensible(directive.modes):
        raise InputError(f"a directive cannot ask for {modes or 'nothing'}")
    node = "" if directive.node is None else f"; node={_quote_name(directive.node)}"
    said = f"mode={modes}{node}; nonce={directive.nonce}; time={now:.6f}"
    return f"{said}; mac={_directive_mac(key, said, body_digest)}"


def verify_directive(value: str, keys: Sequence[Secret], nonces: NonceBook, body_digest: str, now: float) -> Directive:
    """The directive in a header's `value`, good once, for the body with `body_digest` only.

    Raises `SignatureRejected` as `verify_request` does.
    """
    found = _DIRECTIVE.fullmatch(value)
    if found is None or not _sensible(modes := frozenset(found["mode"].split("+"))):
        raise _rejected("directive", "malformed")
    said = value.rpartition("; mac=")[0]
    if not any(_same(found["mac"], _directive_mac(key, said, body_digest)) for key in keys):
        raise _rejected("directive", "wrong key")
    nonces.admit(found["mac"], float(found["time"]), now)
    node = found["node"]
    return Directive(modes, found["nonce"], None if node is None else NodeId(unquote(node)))


def sign_document(key: Secret, purpose: str, document: Mapping[str, Any]) -> str:
    """The MAC of a document for one purpose, over its canonical JSON without its own ``mac`` entry.

    Raises `ValueError` or `TypeError` for what is not plain JSON.
    """
    content = {name: value for name, value in document.items() if name != "mac"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return _mac(key, f"document:{purpose}", text)


def verify_document(keys: Sequence[Secret], purpose: str, document: Mapping[str, Any], mac: str) -> None:
    """Raise `SignatureRejected` unless `mac` is what `sign_document` gives under one of `keys`."""
    try:
        valid = any(_same(mac, sign_document(key, purpose, document)) for key in keys)
    except (ValueError, TypeError, RecursionError) as error:
        raise _rejected(purpose, "malformed") from error
    if not valid:
        raise _rejected(purpose, "wrong key")


def body_digest(body: bytes) -> str:
    """SHA-256 of a body, in hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def _parse_request(headers: Mapping[str, str]) -> dict[str, str]:
    value = next((text for name, text in headers.items() if name.lower() == "authorization"), None)
    if value is None:
        raise _rejected("request", "missing")
    found = _REQUEST.fullmatch(value)
    if found is None:
        raise _rejected("request", "malformed")
    return found.groupdict(default="") | {"said": value.rpartition(", mac=")[0] if found["mac"] else value}


def _find_request_key(request: SignedRequest, said: Mapping[str, str], gate: RequestGate) -> Secret | None:
    if not said["mac"]:
        if gate.allow_unsigned and not gate.keys:
            return None
        raise _rejected("request", "missing")
    for key in gate.keys:
        if _same(said["mac"], _request_mac(key, said["said"], request.method, request.path)):
            return key
    raise _rejected("request", "wrong key")


def _request_mac(key: Secret, said: str, method: str, path: str) -> str:
    return _mac(key, "request", f"kakeya-request-1\n{method}\n{path}\n{said}")


def _directive_mac(key: Secret, said: str, digest: str) -> str:
    return _mac(key, "directive", f"kakeya-directive-1\n{digest}\n{said}")


def _mac(key: Secret, purpose: str, text: str) -> str:
    return hmac.digest(key.derive(purpose).reveal(), text.encode(), "sha256").hex()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _sensible(modes: frozenset[str]) -> bool:
    return bool(modes) and modes <= MODES and not {"remote", "local"} <= modes


def _quote_name(name: str) -> str:
    quoted = quote(name, safe="")
    if not re.fullmatch(_NAME, quoted):
        raise InputError(f"{name!r} cannot be sent as a name: it is empty or too long")
    return quoted


def _rejected(what: str, reason: str) -> SignatureRejected:
    return SignatureRejected(f"{what} rejected: {reason}")


__all__ = [
    "DIRECTIVE_HEADER",
    "MODES",
    "REPLY_HEADER",
    "REQUEST_HEADER",
    "Caller",
    "Directive",
    "NodeSigner",
    "NonceBook",
    "RequestGate",
    "SignedRequest",
    "body_digest",
    "encode_directive",
    "new_nonce",
    "nonce_of",
    "sign_directive",
    "sign_document",
    "sign_reply",
    "verify_body",
    "verify_directive",
    "verify_document",
    "verify_reply",
    "verify_request",
]
