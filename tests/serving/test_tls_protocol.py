"""TLS between two nodes: who is let in, who is not and why, and that nothing changes on its way."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
from collections.abc import Iterator

import httpx
import pytest

from faults.proxy import Fault, FaultProxy
from kakeya_ops.certificates import Certificates
from kakeya_ops.errors import PeerError, PeerRefused, PeerUnreachable, TlsFailed
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.client import BlockArrival, WantedBlock
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving import tls_protocol
from kakeya_ops.serving.counters import CounterName
from serving.running import Served, block_hash, fill, make_cache, payload, simple_identity, simple_layout
from trust import AUTHORITY, LONG_AGO, STRANGER, certificates, tls_client, tls_served
from waiting import wait_until

HEAD = certificates("head")
LAYOUT = simple_layout(row_bytes=16 * 1024, block_tokens=16)
"""A part of 512 KiB: 32 records of TLS."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with tls_served(make_cache(identity=simple_identity(LAYOUT)), certificates()) as served:
        yield served


def refused(served: Served, reason: str) -> float:
    return served.node.counters.value(CounterName.CONNECTIONS_REFUSED, reason=reason)


def test_blocks_come_and_go_as_they_are_on_one_connection(shared: Served) -> None:
    hashes = [block_hash(i) for i in range(6)]
    fill(shared.node.pool, LAYOUT, hashes)
    arrived: list[BlockArrival] = []
    with tls_client(shared, HEAD) as client:
        wanted = [WantedBlock(i, part, hash) for i, hash in enumerate(hashes) for part in range(2)]
        client.fetch(shared.node.identity.digest, wanted, arrived.append)
        parts = [(PartKey(block_hash(100 + i), 0), payload(LAYOUT, 0, i)) for i in range(6)]
        assert client.put_blocks(shared.node.identity.digest, parts) == 6
        assert client.card().node == "cache"
    assert [bytes(one.stored.data) for one in arrived] == [
        bytes(payload(LAYOUT, want.part, want.block).data) for want in wanted
    ]
    assert all(shared.node.pool.holds(key) for key, _ in parts)


def test_what_crosses_the_line_tells_nothing(shared: Served) -> None:
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as tap:
        tap.settimeout(10)

        def relay() -> None:
            near, _ = tap.accept()
            near.settimeout(10)
            with near, socket.create_connection(("127.0.0.1", shared.port)) as far:
                back = threading.Thread(target=pump, args=(far, near))
                back.start()
                pump(near, far)
                back.join(10)

        def pump(source: socket.socket, target: socket.socket) -> None:
            while data := source.recv(65536):
                seen.extend(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=relay)
        thread.start()
        with tls_client(shared, HEAD, port=tap.getsockname()[1]) as client:
            client.card()
        thread.join(10)
    assert len(seen) > 1000
    for word in (b"Authorization", b"HTTP/1.1", b"identity_document"):
        assert word not in seen


@dataclasses.dataclass(frozen=True)
class Stranger:
    """A pair that must not talk: what each has, the caller's reason, and the server's word for it in its counter."""

    server: Certificates
    client: Certificates | None
    reason: str
    counted: str | None = None


OLD = certificates(now=LONG_AGO)
BOTH = (AUTHORITY, STRANGER)
STRANGERS = {
    "the peer's certificate has expired": Stranger(OLD, HEAD, "certificate_expired", "refused_by_caller"),
    "the peer is of another fleet": Stranger(
        certificates(issuer=STRANGER), HEAD, "certificate_foreign", "refused_by_caller"
    ),
    "another node answers": Stranger(certificates("other"), HEAD, "certificate_wrong_node"),
    "the caller has no certificate": Stranger(certificates(), None, "certificate_missing"),
    "the caller's certificate has expired": Stranger(
        certificates(), certificates("head", now=LONG_AGO), "certificate_expired"
    ),
    "the caller is of another fleet": Stranger(
        certificates(),
        certificates("head", issuer=STRANGER, accepted=BOTH),
        "certificate_foreign",
        "certificate_foreign",
    ),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_who_must_not_talk_does_not_and_says_why(name: str) -> None:
    case = STRANGERS[name]
    with tls_served(make_cache(), case.server) as served, tls_client(served, case.client) as client:
        with pytest.raises(TlsFailed) as caught:
            client.card()
        assert caught.value.reason == case.reason, caught.value.message
        assert caught.value.hint is not None
        wait_until(lambda: case.counted is None or refused(served, case.counted) == 1)
        assert served.node.counters.value(CounterName.REQUESTS_REFUSED) == 0


def test_a_caller_that_hides_its_certificate_hears_that_it_wants_one(shared: Served) -> None:
    """A program of somebody else's, which does not look first whether it has any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.pem.decode())
    before = refused(shared, "certificate_missing")
    link = context.wrap_socket(
        socket.create_connection(("127.0.0.1", shared.port), 5), server_hostname="cache.kakeya.internal"
    )
    with link:
        link.sendall(bytes(100_000))
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            link.recv(1)
    assert refused(shared, "certificate_missing") == before + 1


def test_nothing_older_than_tls_1_3_is_spoken(shared: Served) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", shared.port), 5) as link, pytest.raises(ssl.SSLError):
        context.wrap_socket(link, server_hostname="cache.kakeya.internal")


def test_clear_text_gets_a_clear_answer_and_is_counted(shared: Served) -> None:
    before = refused(shared, "cleartext")
    answer = httpx.post(f"http://127.0.0.1:{shared.port}/v1/cards", content=bytes(300_000))
    assert (answer.status_code, answer.json()["code"]) == (400, "tls_required")
    with pytest.raises(PeerRefused, match="speaks TLS only") as caught:
        shared.client().card()
    assert caught.value.code == "tls_required"
    assert refused(shared, "cleartext") == before + 2


def test_a_peer_that_speaks_no_tls_is_named_and_told_nothing() -> None:
    with Served(make_cache()) as served, tls_client(served, HEAD) as client:
        with pytest.raises(TlsFailed, match="clear text") as caught:
            client.card()
        assert caught.value.reason == "cleartext"


def test_a_connection_that_breaks_is_unreachable_and_what_was_whole_is_used(shared: Served) -> None:
    hashes = [block_hash(i) for i in range(6)]
    fill(shared.node.pool, LAYOUT, hashes)
    wanted = [WantedBlock(i, 0, hash) for i, hash in enumerate(hashes)]
    arrived: list[BlockArrival] = []
    with FaultProxy(("127.0.0.1", shared.port)) as proxy, tls_client(shared, HEAD, port=proxy.port) as client:
        proxy.set(down=Fault(cut_after_bytes=4 * 512 * 1024))
        with pytest.raises(PeerUnreachable):
            client.fetch(shared.node.identity.digest, wanted, arrived.append)
        assert 0 < len(arrived) < 6
        proxy.set(down=Fault(corrupt_at_byte=300_000))
        with pytest.raises(PeerError):
            client.fetch(shared.node.identity.digest, wanted, lambda arrival: None)
        proxy.heal()
        assert client.card().node == "cache"


def test_a_call_can_be_given_up(shared: Served) -> None:
    with FaultProxy(("127.0.0.1", shared.port)) as proxy, tls_client(shared, HEAD, port=proxy.port) as client:
        client.card()
        stop, heard = StopFlag(), threading.Event()

        def run() -> None:
            with pytest.raises(CallAborted):
                client.card(stop)
            heard.set()

        proxy.set(down=Fault(delay_seconds=30.0))
        proxy.sever()
        thread = threading.Thread(target=run)
        thread.start()
        stop.stop()
        assert heard.wait(10)
        thread.join(10)


def test_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_protocol, "HANDSHAKE_SECONDS", 0.1)
    with tls_served(make_cache(), certificates()) as served:
        with socket.create_connection(("127.0.0.1", served.port), 10) as link:
            assert link.recv(1) == b""
        assert refused(served, "silent") == 1


@pytest.mark.parametrize("noise", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(70_000), b"SSH-2.0-x\r\n"])
def test_noise_ends_in_a_closed_connection_and_the_server_goes_on(shared: Served, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), 10) as link:
        link.sendall(noise)
        link.shutdown(socket.SHUT_WR)
        while link.recv(65536):
            pass
    with tls_client(shared, HEAD) as client:
        assert client.card().node == "cache"
