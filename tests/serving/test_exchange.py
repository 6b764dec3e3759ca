from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

import pytest

from faults.proxy import FaultProxy
from kakeya_ops.inventory import Endpoint
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.links import Link
from kakeya_ops.serving.node import Node
from kakeya_ops.units import NodeId
from ports import choose_ports
from serving.running import DEADLINE_SECONDS, Served, make_cache

FAST = 0.02
NEVER = 3600.0


def at(port: int, *, priority: int = 50, address: str = "127.0.0.1", network: str = "loopback") -> Endpoint:
    return Endpoint(network=network, address=address, port=port, priority=priority)


@contextlib.contextmanager
def exchanging(
    node: Node, hosts: Mapping[str, Sequence[Endpoint]], *, period_seconds: float = FAST
) -> Iterator[Exchange]:
    named = {NodeId(name): endpoints for name, endpoints in hosts.items()}
    exchange = Exchange(node, named, period_seconds=period_seconds)
    exchange.start()
    try:
        yield exchange
    finally:
        exchange.stop()


def wait(exchange: Exchange, condition: object) -> None:
    assert callable(condition)
    assert exchange.wait_until(condition, DEADLINE_SECONDS), exchange.links()


@pytest.fixture
def peer() -> Iterator[Served]:
    with Served(make_cache("peer")) as served:
        yield served


@pytest.fixture
def proxy(peer: Served) -> Iterator[FaultProxy]:
    with FaultProxy(("127.0.0.1", peer.port)) as proxy:
        yield proxy


def test_two_nodes_learn_each_others_cards_and_the_link(peer: Served) -> None:
    me = make_cache("me")
    with exchanging(me, {"peer": [at(peer.port)], "me": [at(1)]}) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].up)
        assert set(exchange.links()) == {"peer"}
        found, mine = me.cards.card("peer"), peer.node.cards.card("me")
        link = exchange.links()["peer"]
        assert link.rtt_seconds is not None
        assert 0 < link.rtt_seconds < 5
        assert link.to_json()["network"] == "loopback"
    assert found is not None
    assert mine is not None
    assert (found.instance, mine.instance) == (peer.node.instance, me.instance)


def test_cards_are_passed_on_by_a_third_node(peer: Served) -> None:
    first, second = make_cache("first"), make_cache("second")
    with exchanging(first, {"peer": [at(peer.port)]}), exchanging(second, {"peer": [at(peer.port)]}) as exchange:
        wait(exchange, lambda: second.cards.card("first"))


def test_a_peer_that_goes_and_comes_back(peer: Served, proxy: FaultProxy) -> None:
    with exchanging(make_cache("me"), {"peer": [at(proxy.port)]}) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].up)
        link = exchange.links()["peer"]
        assert exchange.client("peer", link) is not None
        assert exchange.client("nobody", link) is None
        proxy.set("refuse")
        proxy.sever()
        wait(exchange, lambda: not exchange.links()["peer"].up)
        error = exchange.links()["peer"].last_error
        assert error is not None
        assert error.startswith("peer: ")
        assert exchange.client("peer", link) is None
        proxy.heal()
        wait(exchange, lambda: exchange.links()["peer"].up)


def test_an_endpoint_that_hangs_holds_up_no_other(peer: Served, proxy: FaultProxy) -> None:
    proxy.set("ignore")
    with exchanging(make_cache("me"), {"slow": [at(proxy.port)], "peer": [at(peer.port)]}) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].up)
        assert exchange.links()["slow"].last_error == "not tried yet"


def test_the_way_with_the_higher_priority_is_best_until_it_fails(peer: Served, proxy: FaultProxy) -> None:
    endpoints = [at(peer.port, priority=10), at(proxy.port, priority=100)]
    with exchanging(make_cache("me"), {"peer": endpoints}) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].endpoint.port == proxy.port and exchange.links()["peer"].up)
        proxy.set("refuse")
        proxy.sever()
        wait(exchange, lambda: exchange.links()["peer"].endpoint.port == peer.port)
        assert exchange.links()["peer"].up
        proxy.heal()
        wait(exchange, lambda: exchange.links()["peer"].endpoint.port == proxy.port)


def test_of_equal_ways_the_quicker_is_best(peer: Served, proxy: FaultProxy) -> None:
    ticks = iter(range(10**9))
    node = make_cache("me")
    exchange = Exchange(node, {NodeId("peer"): [at(proxy.port), at(peer.port)]}, clock=lambda: float(next(ticks)))
    slow, quick = exchange._ways[NodeId("peer")]
    for way, rtt in ((slow, 0.2), (quick, 0.1)):
        way.error = None
        for seen in (rtt, 50.0, rtt):
            way.estimate.observe_rtt(seen)
    assert exchange.links()["peer"].endpoint.port == peer.port
    assert exchange.links()["peer"].rtt_seconds == 0.1
    exchange.stop()


def test_a_rate_is_the_median_of_transfers_that_are_long_enough(peer: Served) -> None:
    with exchanging(make_cache("me"), {"peer": [at(peer.port)]}) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].up)
        end = exchange.links()["peer"].endpoint
        assert exchange.links()["peer"].bytes_per_second is None
        for nbytes, seconds in ((1000, 1.0), (10**6, 0.0)):
            exchange.observe_transfer("peer", end, nbytes, seconds)
        assert exchange.links()["peer"].bytes_per_second is None
        for nbytes, seconds in ((10**6, 1.0), (10**6, 0.5), (10**6, 10.0)):
            exchange.observe_transfer("peer", end, nbytes, seconds)
        exchange.observe_transfer("nobody", end, 10**6, 1.0)
        assert exchange.links()["peer"].bytes_per_second == pytest.approx(10**6, rel=1e-3)


def test_the_way_that_was_used_is_credited_and_left_if_it_is_slow(peer: Served, proxy: FaultProxy) -> None:
    endpoints = [at(peer.port, priority=10), at(proxy.port, priority=100)]
    with exchanging(make_cache("me"), {"peer": endpoints}) as exchange:
        wait(exchange, lambda: all(way.link().up for way in exchange._ways[NodeId("peer")]))
        preferred = exchange.links()["peer"]
        assert preferred.endpoint.port == proxy.port
        exchange.observe_transfer("peer", preferred.endpoint, 10**5, 100.0)
        used = exchange.links()["peer"]
        assert (used.endpoint.port, used.bytes_per_second) == (peer.port, None)


def test_a_way_that_fails_a_request_is_left_at_once_and_taken_again_when_it_is_well(
    peer: Served, proxy: FaultProxy
) -> None:
    endpoints = [at(peer.port, priority=10), at(proxy.port, priority=100)]
    with exchanging(make_cache("me"), {"peer": endpoints}) as exchange:
        wait(exchange, lambda: all(way.up for way in exchange.ways("peer")))
        preferred = exchange.links()["peer"].endpoint
        assert preferred.port == proxy.port
        assert exchange.avoid("peer", preferred)
        assert exchange.links()["peer"].endpoint.port == peer.port
        assert not exchange.avoid("peer", exchange.links()["peer"].endpoint)  # there is no other now
        assert not exchange.avoid("nobody", preferred)
        wait(exchange, lambda: exchange.links()["peer"].endpoint.port == proxy.port)


def test_without_a_certificate_an_untrusted_way_is_not_used_and_says_so() -> None:
    with exchanging(make_cache("me"), {"far": [at(1, address="192.0.2.1", network="lan")]}) as exchange:
        wait(exchange, lambda: "here is no certificate" in str(exchange.links()["far"].last_error))
        link = exchange.links()["far"]
        assert link.to_json()["security"] == "tls"
        assert exchange.client("far", link) is None


def test_a_host_without_endpoints_has_no_link() -> None:
    with exchanging(make_cache("me"), {"hidden": []}) as exchange:
        assert exchange.links() == {}


def test_a_wake_is_an_exchange_at_once(peer: Served) -> None:
    with exchanging(make_cache("me"), {"peer": [at(peer.port)]}, period_seconds=NEVER) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].up)
        guest = make_cache("guest").card()
        peer.node.cards.merge([guest])
        exchange.wake()
        me = exchange._node
        wait(exchange, lambda: me.cards.card("guest") == guest)


def test_stop_does_not_wait_for_the_period_nor_for_a_peer_that_hangs(proxy: FaultProxy, peer: Served) -> None:
    hosts = {NodeId("peer"): [at(peer.port)], NodeId("slow"): [at(proxy.port)]}
    proxy.set("ignore")
    exchange = Exchange(make_cache("me"), hosts, period_seconds=NEVER)
    exchange.start()
    wait(exchange, lambda: exchange.links()["peer"].up)
    assert proxy.wait_until(lambda p: p.accepted == 1)
    exchange.stop()
    assert not any(thread.is_alive() for thread in exchange._threads)


def test_two_nodes_with_one_id_are_logged_once_by_both_names(peer: Served, caplog: pytest.LogCaptureFixture) -> None:
    me = make_cache("me")
    base = make_cache("twin").card()
    with caplog.at_level(logging.ERROR), exchanging(me, {"peer": [at(peer.port)]}) as exchange:
        for step in range(6):
            twins = [base, base.model_copy(update={"instance": "f" * 32, "epoch": base.epoch + 1})]
            me.cards.merge(twin.model_copy(update={"issued_at": 100.0 + 2 * step}) for twin in twins)
        wait(exchange, lambda: "two nodes call themselves twin" in caplog.text)
        exchange.wake()
        wait(exchange, lambda: exchange.links()["peer"].up)
    assert caplog.text.count("two nodes call themselves twin") == 1


def test_a_link_that_was_never_measured_is_not_up() -> None:
    with exchanging(make_cache("me"), {"gone": [at(1)]}) as exchange:
        link = exchange.links()["gone"]
        assert isinstance(link, Link)
        assert not link.up


def test_the_card_says_whom_its_process_reaches(peer: Served) -> None:
    me, [gone] = make_cache("me"), choose_ports(1)
    with exchanging(me, {"peer": [at(peer.port)], "gone": [at(gone)]}) as exchange:
        wait(exchange, lambda: exchange.links()["peer"].up)
        wait(exchange, lambda: "refused" in (exchange.links()["gone"].last_error or ""))
        links = {link.node: link for link in me.card().links}
    assert links["peer"].error is None
    assert "refused" in (links["gone"].error or "")
    assert links["gone"].network == "loopback"
