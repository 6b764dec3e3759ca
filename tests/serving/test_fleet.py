"""The fleet around a head: known hosts, their links and differences, and who may be asked now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from faults.proxy import FaultProxy
from kakeya_ops.inventory import Endpoint
from kakeya_ops.kv.identity import Runtime
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.fleet import Fleet, FleetSettings, Known
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.quarantine import Quarantine
from kakeya_ops.serving.receipts import RemotePart
from kakeya_ops.serving.sources import make_candidate
from kakeya_ops.serving.standing import FIRST_PAUSE_SECONDS
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import Role
from serving.findings import EVIDENCE
from serving.running import DEADLINE_SECONDS, Served, make_cache, simple_identity

RUNTIME = Runtime(mlx="1", mlx_lm="2", backend="cpu", device="x86", threads="1")
HOSTS: dict[str, Role] = {"me": "head", "store": "cache", "other": "cache", "nobody": "worker"}


def transfer_over(link: dict[str, Any]) -> RemotePart:
    """100 MB in half a second."""
    return RemotePart(
        node="store",
        epoch=1,
        instance="ab" * 16,
        kind="import",
        job=None,
        tokens=1,
        computed_tokens=0,
        pool_tokens=1,
        blocks=1,
        payload_bytes=10**8,
        blocks_digest="",
        transfer_seconds=0.5,
        link=link,
        worker_receipt=None,
    )


def at(port: int) -> Endpoint:
    return Endpoint(network="loopback", address="127.0.0.1", port=port)


@dataclass
class Surroundings:
    """A node that exchanges cards with a cache like itself, one that differs, and a port where nobody listens."""

    node: Node
    exchange: Exchange
    fleet: Fleet
    proxy: FaultProxy
    quarantine: Quarantine

    def known(self, name: str) -> Known:
        return next(known for known in self.fleet.known() if known.node == name)

    def wait(self, name: str, *, usable: bool) -> None:
        assert self.exchange.wait_until(lambda: self.known(name).usable == usable, DEADLINE_SECONDS), self.known(name)


@pytest.fixture
def around() -> Iterator[Surroundings]:
    me = make_cache("me")
    other = make_cache("other", identity=simple_identity(weights="99" * 32))
    with (
        Served(make_cache("store")) as store,
        Served(other) as differs,
        FaultProxy(("127.0.0.1", store.port)) as proxy,
        FaultProxy(("127.0.0.1", 1)) as absent,
    ):
        ports = {"me": 1, "store": proxy.port, "other": differs.port, "nobody": absent.port}
        exchange = Exchange(me, {NodeId(name): [at(port)] for name, port in ports.items()}, period_seconds=0.02)
        exchange.start()
        try:
            quarantine = Quarantine()
            fleet = Fleet(me, exchange, RUNTIME, FleetSettings(HOSTS, quarantine=quarantine))
            surroundings = Surroundings(me, exchange, fleet, proxy, quarantine)
            surroundings.wait("store", usable=True)
            exchange.wait_until(lambda: surroundings.known("other").reachable, DEADLINE_SECONDS)
            yield surroundings
        finally:
            exchange.stop()


def test_every_other_host_is_known_by_name(around: Surroundings) -> None:
    assert [known.node for known in around.fleet.known()] == ["nobody", "other", "store"]


def test_a_host_that_never_showed_itself_is_known_with_the_reason(around: Surroundings) -> None:
    known = around.known("nobody")
    assert (known.role, known.card, known.usable, known.reachable) == ("worker", None, False, False)
    assert known.link is not None
    assert known.link.last_error


def test_one_that_differs_is_not_asked_and_it_is_said_why(around: Surroundings) -> None:
    known = around.known("other")
    assert (known.reachable, known.usable) == (True, False)
    assert known.difference is not None
    assert known.difference.field == "weights"


def test_only_the_usable_one_is_a_source(around: Surroundings) -> None:
    [source] = around.fleet.usable()
    assert (source.node, source.identity) == ("store", around.node.identity.digest)
    assert source.link["port"] == around.proxy.port
    assert source.link["rtt_seconds"] > 0


def test_a_failure_pauses_it_and_a_success_forgives(around: Surroundings) -> None:
    around.fleet.failed("store", "corrupt")
    assert around.fleet.usable() == []
    assert around.known("store").reachable
    around.fleet.succeeded("store")
    assert [source.node for source in around.fleet.usable()] == ["store"]


def test_one_that_an_audit_has_found_is_not_asked_until_it_is_released(around: Surroundings) -> None:
    around.quarantine.hold("store", EVIDENCE)
    around.quarantine.hold("nobody", EVIDENCE)
    known = around.known("store")
    assert (known.usable, known.reachable, known.held) == (False, True, around.quarantine.holds("store"))
    assert around.known("nobody").held is not None
    assert around.fleet.usable() == []
    around.quarantine.release("store", "because")
    assert [source.node for source in around.fleet.usable()] == ["store"]


def test_a_pause_ends_by_itself(around: Surroundings) -> None:
    around.fleet.failed("store", "corrupt")
    assert around.exchange.wait_until(lambda: around.known("store").usable, 20 * FIRST_PAUSE_SECONDS)


def test_one_whose_link_is_down_is_not_asked(around: Surroundings) -> None:
    around.proxy.set("refuse")
    around.proxy.sever()
    around.wait("store", usable=False)
    known = around.known("store")
    assert known.card is not None
    assert not known.reachable
    around.proxy.heal()
    around.wait("store", usable=True)


def test_one_that_says_it_is_ill_is_not_asked(around: Surroundings) -> None:
    card = around.known("store").card
    assert card is not None
    later = card.model_copy(update={"healthy": False, "issued_at": card.issued_at + 1e6})
    around.node.cards.merge([later])
    assert not around.known("store").usable


def test_two_with_one_id_are_both_left_out(around: Surroundings) -> None:
    twin = make_cache("store").card().model_copy(update={"epoch": 1})
    for later in (0.0, 20.0):
        around.node.cards.merge([twin.model_copy(update={"issued_at": twin.issued_at + later})])
    assert [conflict.node for conflict in around.node.cards.conflicts()] == ["store"]
    assert not around.known("store").usable
    assert [known.node for known in around.fleet.known() if known.conflict] == ["store"]


def test_a_transfer_is_a_measurement_of_the_link(around: Surroundings) -> None:
    [source] = around.fleet.usable()
    around.fleet.transferred(transfer_over(source.link))
    around.fleet.transferred(replace(transfer_over(source.link), link={**source.link, "port": 1}, payload_bytes=10**9))
    [source] = around.fleet.usable()
    assert source.link["bytes_per_second"] == pytest.approx(2e8, rel=1e-3)


def test_what_a_job_took_is_expected_of_the_next(around: Surroundings) -> None:
    [source] = around.fleet.usable()
    receipt = {"pool_tokens": 0, "computed_tokens": 64, "compute_seconds": 9.0, "queue_seconds": 0.0}
    slow = replace(
        transfer_over(source.link),
        transfer_seconds=9.5,
        payload_bytes=10**6,
        worker_receipt=receipt | {"payload_bytes": 10**6},
    )
    around.fleet.transferred(slow)
    assert around.fleet.expected("store").overhead_seconds == pytest.approx(0.5)
    # The worker was what the stream waited for; the link can carry at least so much.
    assert around.fleet.ways("store")[0].bytes_per_second == pytest.approx(10**6 / 9.5, rel=0.01)
    around.fleet.transferred(replace(slow, transfer_seconds=100.0, link=source.link | {"bytes_per_second": 1e9}))
    rates = around.fleet.ways("store")[0].bytes_per_second
    assert rates is not None
    assert rates < 10**6 / 9.4


def test_one_that_failed_is_in_doubt(around: Surroundings) -> None:
    around.fleet.failed("store", "timeout")  # there is no other way to it
    assert not around.known("store").usable
    assert around.fleet.expected("store").doubt == 0.5


def test_a_slow_link_gets_its_blocks_packed_and_is_measured_by_what_travels(around: Surroundings) -> None:
    [source] = around.fleet.usable()
    assert "packing" not in source.link  # nothing was measured
    slow = transfer_over(source.link | {"packing": "exponents", "packed_share": 0.5})
    around.fleet.transferred(replace(slow, payload_bytes=2 * 10**7, transfer_seconds=1.0))
    [source] = around.fleet.usable()
    assert source.link["bytes_per_second"] == pytest.approx(10**7, rel=1e-3)
    assert (source.link["packing"], source.link["packed_share"]) == ("exponents", 0.5)
    assert make_candidate(source.card, source.link, source.expected).bytes_per_second == pytest.approx(2e7, rel=1e-3)
    around.fleet.transferred(replace(slow, payload_bytes=10**9, transfer_seconds=0.1))
    around.fleet.transferred(replace(slow, payload_bytes=10**9, transfer_seconds=0.1))
    [source] = around.fleet.usable()
    assert "packing" not in source.link
