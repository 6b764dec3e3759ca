"""The client against real nodes, through a proxy that breaks what lies between."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.proxy import Fault, FaultProxy
from kakeya_ops.errors import PeerError, PeerRefused, PeerTimeout, PeerUnreachable, StreamCorrupt
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.client import BlockArrival, PeerClient, PrefillCall, WantedBlock
from kakeya_ops.peer.connection import CallAborted, Endpoint, StopFlag, Timeouts
from kakeya_ops.secret import Secret
from kakeya_ops.units import NodeId
from kakeya_ops.wire.bodies import PrefillRequest
from serving.running import (
    KEY,
    Served,
    block_hash,
    fill,
    make_cache,
    make_caller,
    payload,
    simple_identity,
    simple_layout,
)

LAYOUT = simple_layout(row_bytes=1024)
IDENTITY = simple_identity(LAYOUT)
HASHES = [block_hash(index) for index in range(8)]
WANTED = [WantedBlock(block, part, hash) for block, hash in enumerate(HASHES) for part in (0, 1)]
QUICK = Timeouts(connect_seconds=5.0, reply_seconds=0.3, silence_seconds=0.3)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    node = make_cache(identity=IDENTITY)
    fill(node.pool, LAYOUT, HASHES)
    with Served(node) as served:
        yield served


@pytest.fixture
def proxy(served: Served) -> Iterator[FaultProxy]:
    with FaultProxy(("127.0.0.1", served.port)) as proxy:
        yield proxy


@pytest.fixture
def client(served: Served, proxy: FaultProxy) -> PeerClient:
    return served.client(port=proxy.port)


def fetch(client: PeerClient, stop: StopFlag | None = None) -> list[BlockArrival]:
    arrived: list[BlockArrival] = []
    client.fetch(IDENTITY.digest, WANTED, arrived.append, stop)
    return arrived


def test_a_card_says_who_the_peer_is(client: PeerClient, served: Served) -> None:
    card = client.card()
    assert (card.node, card.role, card.instance) == ("cache", "cache", served.node.instance)
    assert card.identity == IDENTITY.digest


def test_lookup_finds_how_far_the_pool_reaches(client: PeerClient) -> None:
    assert client.lookup(IDENTITY.digest, HASHES).resume_blocks == 8
    assert client.lookup(IDENTITY.digest, [*HASHES[:3], block_hash(99)]).resume_blocks == 3
    assert client.lookup(IDENTITY.digest, [block_hash(99)]).parts_held == 0


def test_fetch_brings_the_very_bytes_in_order(client: PeerClient) -> None:
    arrived = fetch(client)
    assert [(a.block, a.part, a.hash) for a in arrived] == WANTED
    for arrival in arrived:
        kept = payload(LAYOUT, arrival.part, arrival.block)
        assert (bytes(arrival.stored.data), arrival.stored.checksum) == (bytes(kept.data), kept.checksum)
        assert arrival.stored.data.readonly


def test_fetch_reports_what_came_and_leaves_out_what_is_gone(client: PeerClient, served: Served) -> None:
    wanted = [*WANTED[:3], WantedBlock(9, 0, block_hash(99))]
    report = client.fetch(IDENTITY.digest, wanted, lambda arrival: None)
    assert (report.parts, report.payload_bytes) == (3, 2 * LAYOUT.parts[0].nbytes + LAYOUT.parts[1].nbytes)
    assert report.header.instance == served.node.instance


def test_what_many_endpoints_send_is_kept_once(served: Served, proxy: FaultProxy) -> None:
    """Clients of one caller take what comes into the same memory, and none of them keeps any of its own."""
    caller = make_caller()
    ends = [Endpoint("127.0.0.1", port) for port in (served.port, proxy.port)]
    clients = [PeerClient(NodeId("cache"), end, caller, LAYOUT) for end in ends]
    try:
        kept: list[int] = []
        for client in clients:
            arrived = fetch(client)
            assert caller.room.waiting_bytes == 0
            payload_bytes = sum(arrival.stored.nbytes for arrival in arrived)
            arrived.clear()
            kept.append(caller.room.waiting_bytes)
        assert kept == [payload_bytes] * 2
    finally:
        for client in clients:
            client.close()


def test_blocks_that_are_put_can_be_fetched(client: PeerClient, served: Served) -> None:
    parts = [(PartKey(block_hash(500 + i), 0), payload(LAYOUT, 0, 500 + i)) for i in range(3)]
    assert client.put_blocks(IDENTITY.digest, parts) == 3
    assert all(served.node.pool.get(key) == part for key, part in parts)


def test_connections_are_kept(client: PeerClient, proxy: FaultProxy) -> None:
    for _ in range(5):
        client.lookup(IDENTITY.digest, HASHES)
        fetch(client)
    client.put_blocks(IDENTITY.digest, [])
    assert proxy.accepted == 1


def test_a_connection_that_the_server_closed_while_idle_fails_nothing(client: PeerClient, proxy: FaultProxy) -> None:
    client.card()
    proxy.sever()
    assert proxy.wait_until(lambda p: p.accepted == 1)
    assert client.card().node == "cache"
    fetch(client)
    assert proxy.accepted == 2


def test_a_refused_connection_is_unreachable(client: PeerClient, proxy: FaultProxy) -> None:
    proxy.set("refuse")
    with pytest.raises(PeerUnreachable):
        client.card()


def test_no_listener_is_unreachable_and_named() -> None:
    with FaultProxy(("127.0.0.1", 1)) as gone:
        port = gone.port
    client = PeerClient(NodeId("gone"), Endpoint("127.0.0.1", port), make_caller(), LAYOUT)
    with pytest.raises(PeerUnreachable, match=f"gone: 127.0.0.1:{port} cannot be reached"):
        client.card()


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    client = PeerClient(NodeId("x"), Endpoint("no-such-host.invalid", 1, in_clear=True), make_caller(), LAYOUT)
    with pytest.raises(PeerUnreachable):
        client.card()


def test_silence_is_a_timeout(served: Served, proxy: FaultProxy) -> None:
    proxy.set("ignore")
    with pytest.raises(PeerTimeout):
        served.client(port=proxy.port, timeouts=QUICK).card()


def test_silence_in_mid_stream_is_a_timeout_that_keeps_what_came(served: Served, proxy: FaultProxy) -> None:
    proxy.set(down=Fault(drop_after_bytes=100_000))
    arrived: list[BlockArrival] = []
    with pytest.raises(PeerTimeout):
        served.client(port=proxy.port, timeouts=QUICK).fetch(IDENTITY.digest, WANTED, arrived.append)
    assert 0 < len(arrived) < len(WANTED)


def test_a_slow_stream_is_no_timeout(served: Served, proxy: FaultProxy) -> None:
    proxy.set(down=Fault(bytes_per_second=500_000))
    assert len(fetch(served.client(port=proxy.port, timeouts=QUICK))) == len(WANTED)


@pytest.mark.parametrize("cut", [1, 50, 200])
def test_a_reply_that_is_cut_is_unreachable(client: PeerClient, proxy: FaultProxy, cut: int) -> None:
    proxy.set(down=Fault(cut_after_bytes=cut))
    with pytest.raises(PeerUnreachable):
        client.card()


@pytest.mark.parametrize("cut", [1, 150, 400, 50_000, 260_000])
def test_a_cut_is_unreachable_and_the_next_call_works(client: PeerClient, proxy: FaultProxy, cut: int) -> None:
    proxy.set(down=Fault(cut_after_bytes=cut))
    with pytest.raises(PeerUnreachable):
        fetch(client)
    proxy.heal()
    assert len(fetch(client)) == len(WANTED)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(offset=st.integers(0, 520_000))
def test_one_wrong_bit_never_passes(served: Served, proxy: FaultProxy, offset: int) -> None:
    proxy.set(down=Fault(corrupt_at_byte=offset))
    client = served.client(port=proxy.port, timeouts=QUICK)
    arrived: list[BlockArrival] = []
    broken: PeerError | None = None
    try:
        client.fetch(IDENTITY.digest, WANTED, arrived.append)
    except PeerError as error:
        broken = error
    assert all(bytes(a.stored.data) == bytes(payload(LAYOUT, a.part, a.block).data) for a in arrived)
    assert broken is not None or len(arrived) == len(WANTED)


def test_a_wrong_bit_in_a_payload_is_corrupt(client: PeerClient, proxy: FaultProxy) -> None:
    proxy.set(down=Fault(corrupt_at_byte=200_000))
    with pytest.raises(StreamCorrupt, match="tag"):
        fetch(client)


def test_a_wrong_bit_in_a_request_is_refused(client: PeerClient, proxy: FaultProxy) -> None:
    proxy.set(up=Fault(corrupt_at_byte=700))
    with pytest.raises(PeerRefused) as caught:
        client.lookup(IDENTITY.digest, HASHES)
    assert caught.value.code == "signature_rejected"


def test_a_wrong_bit_in_an_upload_is_refused_and_nothing_is_kept(
    client: PeerClient, proxy: FaultProxy, served: Served
) -> None:
    proxy.set(up=Fault(corrupt_at_byte=20_000))
    key = PartKey(block_hash(600), 0)
    with pytest.raises(PeerRefused) as caught:
        client.put_blocks(IDENTITY.digest, [(key, payload(LAYOUT, 0, 600))])
    assert caught.value.code == "stream_corrupt"
    assert not served.node.pool.holds(key)


def test_a_stop_ends_a_call_that_waits(served: Served, proxy: FaultProxy) -> None:
    proxy.set(down=Fault(drop_after_bytes=100_000))
    stop, arrived = StopFlag(), threading.Event()
    client = served.client(port=proxy.port)
    errors: list[PeerError] = []

    def call() -> None:
        try:
            client.fetch(IDENTITY.digest, WANTED, lambda arrival: arrived.set(), stop)
        except PeerError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert arrived.wait(10)
    stop.stop()
    thread.join(5)
    assert [type(error) for error in errors] == [CallAborted]


def test_a_stopped_flag_stops_calls_that_are_made_later(client: PeerClient) -> None:
    stop = StopFlag()
    stop.stop()
    with pytest.raises(CallAborted):
        client.card(stop)


def test_what_the_receiver_raises_passes_through(client: PeerClient) -> None:
    def fail(arrival: BlockArrival) -> None:
        raise OSError("the receiver's own")

    with pytest.raises(OSError, match="own"):
        client.fetch(IDENTITY.digest, WANTED, fail)
    assert len(fetch(client)) == len(WANTED)


def test_another_key_is_refused_both_ways(served: Served) -> None:
    stranger = served.client(make_caller(key=Secret(b"another")))
    with pytest.raises(PeerRefused) as caught:
        stranger.card()
    assert (caught.value.status, caught.value.code) == (401, "signature_rejected")


def test_a_request_for_another_node_is_refused(served: Served) -> None:
    client = PeerClient(NodeId("other"), Endpoint("127.0.0.1", served.port), make_caller(), LAYOUT)
    with pytest.raises(PeerRefused, match="wrong node"):
        client.card()


def test_another_identity_is_named(client: PeerClient) -> None:
    with pytest.raises(PeerRefused, match="differs in identity") as caught:
        client.lookup("0" * 64, HASHES)
    assert (caught.value.status, caught.value.code) == (409, "identity_mismatch")


def test_a_cache_peer_computes_nothing(client: PeerClient) -> None:
    request = PrefillRequest(
        identity=IDENTITY.digest,
        tenant="t",
        tokens=(1,) * 16,
        from_blocks=0,
        blocks=1,
        nonce="0" * 32,
        request_id="r",
    )
    with pytest.raises(PeerRefused, match="cache") as caught:
        client.prefill(PrefillCall(request, HASHES[:1], lambda arrival: None))
    assert caught.value.status == 409


def test_an_unsigned_fleet_still_finds_accidents() -> None:
    node = make_cache(keys=(), identity=IDENTITY)
    fill(node.pool, LAYOUT, HASHES)
    with Served(node) as served, FaultProxy(("127.0.0.1", served.port)) as proxy:
        client = served.client(make_caller(key=None), port=proxy.port)
        assert len(fetch(client)) == len(WANTED)
        client.close()
        proxy.set(down=Fault(corrupt_at_byte=200_000))
        with pytest.raises(StreamCorrupt):
            fetch(client)


def test_a_signed_caller_is_not_let_into_an_unsigned_fleet_by_accident() -> None:
    with Served(make_cache(keys=(), identity=IDENTITY)) as served, pytest.raises(PeerError):
        served.client(make_caller(key=KEY)).card()
