"""Authorities and certificates of tests, and nodes that speak TLS on loopback, where real ones never need to."""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kakeya_ops.certificates import Certificates
from kakeya_ops.certificates.authority import Authority
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.tls_protocol import TlsDoor
from serving.running import TIMEOUTS, Served, make_caller

NOW = datetime.datetime.now(datetime.UTC)
LONG_AGO = NOW - datetime.timedelta(days=1000)
AUTHORITY, STRANGER = Authority.new("tests", LONG_AGO), Authority.new("strangers", NOW)


class TlsEndpoint(Endpoint):
    """An endpoint that wants TLS although it is on loopback."""

    @property
    def tls(self) -> bool:
        return True


def write_certificate(path: Path, content: bytes) -> Path:
    """The file as nodes have it."""
    path.write_bytes(content)
    os.chmod(path, 0o600)
    return path


def certificates(
    node: str = "cache",
    *,
    issuer: Authority = AUTHORITY,
    accepted: Sequence[Authority] = (AUTHORITY,),
    now: datetime.datetime = NOW,
) -> Certificates:
    """Those of `node`, which `issuer` issued at `now`."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_certificate(Path(folder) / "cert.pem", issuer.issue(node, ("127.0.0.1",), now))
        return Certificates.load(b"".join(one.pem for one in accepted), path)


@contextlib.contextmanager
def tls_served(node: Node, own: Certificates) -> Iterator[Served]:
    """`node` behind TLS; what it refuses is counted as a real node counts it."""

    def count(reason: str) -> None:
        node.counters.add(CounterName.CONNECTIONS_REFUSED, reason=reason)

    with Served(node, TlsDoor(own.server, count)) as served:
        yield served


@contextlib.contextmanager
def tls_client(served: Served, own: Certificates | None, *, port: int | None = None) -> Iterator[PeerClient]:
    """A client of what `tls_served` serves."""
    endpoint = TlsEndpoint("127.0.0.1", port or served.port)
    caller = replace(make_caller(), certificates=own)
    client = PeerClient(served.node.id, endpoint, caller, served.node.identity.layout, TIMEOUTS)
    try:
        yield client
    finally:
        client.close()


__all__ = [
    "AUTHORITY",
    "LONG_AGO",
    "NOW",
    "STRANGER",
    "TlsEndpoint",
    "certificates",
    "tls_client",
    "tls_served",
    "write_certificate",
]
