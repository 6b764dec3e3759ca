"""Requests that curl makes, to a real node."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kakeya_ops.certificates.places import authorities_path, certificate_path
from kakeya_ops.errors import InputError, PeerError, PeerRefused, PeerUnreachable, StreamCorrupt
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.http import CURL, HttpRequest, base_url, health_request, read_health, read_reply, read_status
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.state import Health
from kakeya_ops.secret import Secret
from kakeya_ops.wire.cards import Card
from serving.running import KEY, TENANT, Served, make_cache
from trust import AUTHORITY, NOW, certificates, tls_served, write_certificate


def curl(request: HttpRequest) -> tuple[int, bytes]:
    done = subprocess.run(CURL, input=request.config(), capture_output=True, timeout=30)
    return done.returncode, done.stdout


def endpoint(port: int) -> Endpoint:
    return Endpoint(network="loopback", address="127.0.0.1", port=port)


def test_health_and_card_of_a_real_node() -> None:
    with Served(make_cache("vault")) as served:
        request = health_request("vault", endpoint(served.port))
        assert read_health(request, *curl(request)).healthy
        assert read_status(request, *curl(request)) == 200
        with pytest.raises(PeerRefused, match="another node, 'vault'"):
            read_health(health_request("other", endpoint(served.port)), *curl(request))
        asking = Asker(KEY, TENANT).card_request("vault", endpoint(served.port))
        assert read_reply(asking, Card, *curl(asking)).node == "vault"


def test_a_wrong_key_and_a_wrong_node_are_refused_by_the_node() -> None:
    with Served(make_cache("vault")) as served:
        for asker, node in ((Asker(Secret(bytes(32)), TENANT), "vault"), (Asker(KEY, TENANT), "other")):
            request = asker.card_request(node, endpoint(served.port))
            with pytest.raises(PeerRefused):
                read_reply(request, Card, *curl(request))


def test_a_reply_that_was_changed_is_noticed() -> None:
    with Served(make_cache("vault")) as served:
        request = Asker(KEY, TENANT).card_request("vault", endpoint(served.port))
        status, output = curl(request)
    with pytest.raises(StreamCorrupt):
        read_reply(request, Card, status, output.replace(b'"vault"', b'"fault"'))


@pytest.mark.parametrize(
    ("status", "output", "error"),
    [
        (7, b"", PeerUnreachable),
        (28, b"", PeerUnreachable),
        (99, b"", PeerUnreachable),
        (0, b"", StreamCorrupt),
        (0, b"HTTP/1.1 200 OK", StreamCorrupt),
        (0, b"SSH-2.0\r\n\r\n", StreamCorrupt),
        (0, b"HTTP/1.1 200 OK\r\n\r\n<html>", PeerRefused),
        (0, b"HTTP/1.1 200 OK\r\n\r\n[]", PeerRefused),
    ],
)
def test_whatever_else_answers_is_an_error_of_that_peer(status: int, output: bytes, error: type[PeerError]) -> None:
    request = HttpRequest("vault", "http://127.0.0.1:1/healthz")
    with pytest.raises(error):
        read_health(request, status, output)


def test_what_is_not_healthy_says_why() -> None:
    body = b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nA: b\r\n\r\n{"node": "vault", "reason": "the pool"}'
    health = read_health(HttpRequest("vault", "http://x"), 0, body)
    assert (health.healthy, health.reason) == (False, "the pool")


def test_urls_of_addresses_with_zones() -> None:
    assert base_url("fe80::1%en0", 80) == "http://[fe80::1%25en0]:80"
    assert base_url("allens.local", 80) == "http://allens.local:80"


def test_nothing_can_add_a_line_to_the_configuration() -> None:
    assert b'url = "http://x/\\"\\\\"' in HttpRequest("n", 'http://x/"\\').config()
    with pytest.raises(InputError):
        HttpRequest("n", "http://x\noutput = /etc/passwd").config()


def test_an_endpoint_that_is_not_trusted_is_asked_by_tls_with_the_certificates_of_the_host(tmp_path: Path) -> None:
    key_file = tmp_path / "fleet.key"
    authorities_path(key_file).write_bytes(AUTHORITY.pem)
    write_certificate(certificate_path(key_file), AUTHORITY.issue("head", (), NOW))

    def ask(node: str, port: int, key_file: Path) -> Health:
        request = health_request(node, Endpoint(network="lan", address="10.9.9.9", port=port))
        # The server of this test has no other address than loopback.
        config = request.config(str(key_file)).replace(b"10.9.9.9", b"127.0.0.1")
        done = subprocess.run(CURL, input=config, capture_output=True, timeout=30)
        return read_health(request, done.returncode, done.stdout)

    with tls_served(make_cache("vault"), certificates("vault")) as served:
        assert ask("vault", served.port, key_file).healthy
        with pytest.raises(PeerUnreachable, match="no certificate of that node"):
            ask("other", served.port, key_file)
        with pytest.raises(PeerUnreachable, match="certificate"):
            ask("vault", served.port, tmp_path / "nothing-there")
