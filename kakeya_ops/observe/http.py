"""HTTP requests that a host makes by its own curl, so that they cross the real endpoint from the real side.

The request is curl's configuration on its standard input: no signature is ever in a list of processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kakeya_ops.certificates.names import dns_name
from kakeya_ops.certificates.places import authorities_path, certificate_path
from kakeya_ops.errors import InputError, PeerError, PeerRefused, PeerUnreachable, SignatureRejected, StreamCorrupt
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.state import Health
from kakeya_ops.secret import Secret
from kakeya_ops.wire.bodies import ErrorBody
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.signing import REPLY_HEADER, NodeSigner, nonce_of, verify_reply
from kakeya_ops.wire.version import check_wire

CURL = ("curl", "--config", "-")
"""Takes what `HttpRequest.config` makes on its standard input."""
SECONDS = 4
"""How long a host waits for an answer; the reply is small, and the engine never holds it up."""

R = TypeVar("R", bound=WireBody)


@dataclass(frozen=True)
class HttpRequest:
    """One request; `key` is the fleet key that its reply must be signed with.

    `endpoint` is the one of the node that it goes to, None for what goes elsewhere and in clear.
    """

    node: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    key: Secret | None = None
    endpoint: Endpoint | None = None

    def config(self, key_file: str | None = None) -> bytes:
        """The request as curl's configuration: errors shown as statuses, the reply with its headers.

        `key_file` is the path of the fleet key on the host that asks; the certificates for TLS lie beside it.
        """
        lines = ["silent", "include", "http1.1", 'noproxy = "*"', f"max-time = {SECONDS}", "max-filesize = 4194304"]
        lines += [f"url = {_quote(self.url)}"]
        lines += [f"header = {_quote(f'{name}: {value}')}" for name, value in self.headers.items()]
        lines += self._tls_lines(key_file or "")
        if self.body is not None:
            lines += [f"data-binary = {_quote(self.body.decode())}"]
        return "\n".join(lines).encode()

    def _tls_lines(self, key_file: str) -> list[str]:
        """The node is called by the name that its certificate has, at the address that its endpoint has."""
        if self.endpoint is None or self.endpoint.in_clear:
            return []
        place = _place(self.endpoint.address, self.endpoint.port)
        files = {"cacert": authorities_path(key_file), "cert": certificate_path(key_file)}
        return [
            "tlsv1.3",
            f"connect-to = {_quote(f'::{place}')}",
            *(f"{name} = {_quote(str(path))}" for name, path in files.items()),
        ]


def health_request(node: str, endpoint: Endpoint) -> HttpRequest:
    """Ask whether the node is healthy."""
    return HttpRequest(node, f"{_node_url(node, endpoint)}/healthz", endpoint=endpoint)


def signed_request(
    signer: NodeSigner, key: Secret | None, node: str, endpoint: Endpoint, call: tuple[str, bytes | None]
) -> HttpRequest:
    """Ask for a path, signed; `call` is the path, and the body of a POST."""
    path, body = call
    headers = signer.sign("GET" if body is None else "POST", path, body or b"", to=node)
    if body is not None:
        headers |= {"Content-Type": "application/json"}
    return HttpRequest(node, _node_url(node, endpoint) + path, headers, body, key, endpoint)


def base_url(address: str, port: int) -> str:
    """The URL of a server's root; the zone of a link-local address is escaped as URLs want it."""
    return f"http://{_place(address.replace('%', '%25'), port)}"


def _node_url(node: str, endpoint: Endpoint) -> str:
    if endpoint.in_clear:
        return base_url(endpoint.address, endpoint.port)
    return f"https://{dns_name(node)}:{endpoint.port}"


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def read_health(request: HttpRequest, status: int, output: bytes) -> Health:
    """What the answer says of the node's health. Raises `PeerError` when it is none of that node."""
    code, _, body = _split(request, status, output)
    try:
        document = json.loads(body)
        node, reason = document["node"], document["reason"]
    except (ValueError, KeyError, TypeError) as error:
        raise PeerRefused(request.node, code, "unreadable", f"something else answers at {request.url}") from error
    if node != request.node:
        raise PeerRefused(
            request.node, code, "wrong node", f"another node, {str(node)[:60]!r}, answers at {request.url}"
        )
    return Health(code == 200, None if code == 200 else str(reason))


def read_status(request: HttpRequest, status: int, output: bytes) -> int:
    """The HTTP status of the answer. Raises `PeerError` when there is none."""
    return _split(request, status, output)[0]


def read_reply(request: HttpRequest, kind: type[R], status: int, output: bytes) -> R:
    """The body of a signed answer, verified. Raises `PeerError`."""
    code, headers, body = _split(request, status, output)
    check_wire(request.node, headers)
    if code != 200:
        raise _refusal(request, code, body)
    try:
        if request.key is not None:
            verify_reply(request.key, nonce_of(request.headers), code, body, headers.get(REPLY_HEADER.lower()))
        return kind.parse(body)
    except (SignatureRejected, InputError) as error:
        raise StreamCorrupt(request.node, error.message) from error


def _refusal(request: HttpRequest, code: int, body: bytes) -> PeerError:
    try:
        said = ErrorBody.parse(body)
    except InputError:
        return PeerRefused(request.node, code, "unreadable", f"answered with HTTP status {code}")
    return PeerRefused(request.node, code, said.code, said.message)


def _split(request: HttpRequest, status: int, output: bytes) -> tuple[int, dict[str, str], bytes]:
    if status != 0:
        reason = _CURL_REASONS.get(status, f"curl ended with status {status}")
        raise PeerUnreachable(request.node, f"{request.url}: {reason}")
    while True:  # a server may send "100 Continue" before its answer
        head, separator, body = output.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if not separator or len(words) < 2 or not words[1].isdecimal():
            raise StreamCorrupt(request.node, f"something else than a node answers at {request.url}")
        if words[1] != "100":
            pairs = (line.partition(":") for line in lines)
            return int(words[1]), {name.lower(): value.strip() for name, _, value in pairs}, body
        output = body


_CURL_REASONS = {
    6: "the name cannot be resolved",
    7: "nothing listens there",
    35: "TLS came to no agreement: is this host's certificate one of the fleet?",
    58: "the certificate of this host cannot be used",
    60: "what answers shows no certificate of that node in this fleet",
    77: "this host has no certificate of the fleet's authority",
    28: f"no answer within {SECONDS} s",
    52: "the connection was closed without an answer",
    56: "the connection broke",
    127: "the host has no curl",
}


def _quote(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise InputError("a request to a node cannot have line ends in it")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


__all__ = [
    "CURL",
    "SECONDS",
    "HttpRequest",
    "base_url",
    "health_request",
    "read_health",
    "read_reply",
    "read_status",
    "signed_request",
]
