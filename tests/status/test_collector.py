"""Real nodes, asked for a moment and for longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from faults.proxy import FaultProxy
from kakeya_ops.errors import AuthenticationFailed
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.runner import Runner
from kakeya_ops.secret import Secret
from kakeya_ops.serving.node import Node
from kakeya_ops.status.asking import SUMMARY_PATH, ApiAnswer
from kakeya_ops.status.board import Look
from kakeya_ops.status.collector import Collector, Sources
from kakeya_ops.status.life import PATIENCE_SECONDS
from kakeya_ops.status.value import FleetStatus
from ports import choose_ports
from serving.running import KEY, Served, make_cache
from status.fleets import cache_inventory
from verify.scripted_head import ScriptedHead, serve

SOURCES = Sources(KEY)


def wait_for(collector: Collector, condition: Callable[[FleetStatus], bool]) -> FleetStatus:
    collector._board.wait_until(lambda heard: condition(collector.status()), 15)
    status = collector.status()
    assert condition(status), status
    return status


def test_a_moment_is_enough_to_know_every_node_and_its_speed() -> None:
    with Served(make_cache("a")) as a, Served(make_cache("b")) as b:
        with Collector(cache_inventory({"a": a.port, "b": b.port}), SOURCES) as collector:
            status = collector.first_status()
        assert [node.state for node in status.nodes] == ["unreachable", "healthy", "healthy"]
        assert status.node("a").prefill_now_tokens_per_second == 0.0
        assert status.node("a").card.instance == a.node.instance  # type: ignore[union-attr]


def test_one_that_is_closed_and_one_that_hangs_are_told_and_hold_up_nobody() -> None:
    [closed] = choose_ports(1)
    with Served(make_cache("a")) as a, FaultProxy(("127.0.0.1", a.port)) as proxy:
        proxy.set("ignore")
        inventory = cache_inventory({"a": a.port, "shut": closed, "hangs": proxy.port})
        with Collector(inventory, SOURCES) as collector:
            assert (
                wait_for(collector, lambda status: status.node("a").state == "healthy").node("hangs").state == "asking"
            )
            status = collector.first_status()
    assert [node.state for node in status.nodes[1:]] == ["healthy", "unreachable", "unreachable"]
    assert "refused" in status.node("shut").problems[0]
    assert "sent nothing for too long" in status.node("hangs").problems[0]


def test_it_ends_at_once_although_a_node_hangs() -> None:
    with FaultProxy(("127.0.0.1", 1)) as proxy:
        proxy.set("ignore")
        with Collector(cache_inventory({"hangs": proxy.port}), SOURCES):
            assert proxy.wait_until(lambda proxy: proxy.accepted >= 1)
            began = time.monotonic()
        assert time.monotonic() - began < PATIENCE_SECONDS


def test_one_that_goes_away_comes_back_as_another_process() -> None:
    node = make_cache("a")
    with (
        Served(node) as served,
        FaultProxy(("127.0.0.1", served.port)) as proxy,
        Collector(cache_inventory({"a": proxy.port}), SOURCES) as collector,
    ):
        wait_for(collector, lambda status: status.node("a").state == "healthy")
        proxy.set("refuse")
        proxy.sever()
        gone = wait_for(collector, lambda status: status.node("a").state == "unreachable")
        assert gone.node("a").card is not None
        _become_another(node)
        proxy.heal()
        back = wait_for(collector, lambda status: status.node("a").state == "healthy").node("a")
    assert back.restarts_seen == 1
    assert back.notes[0].startswith("restarted")
    assert back.card is not None
    assert back.card.instance == node.instance


def _become_another(node: Node) -> None:
    node.epoch, node.instance = time.time_ns(), "ef" * 16


def test_a_host_that_lets_nobody_in_says_so_and_its_node_is_well_nevertheless() -> None:
    opened = threading.Event()

    def refuse(host: ResolvedHost) -> Runner:
        opened.set()
        raise AuthenticationFailed(host.name, "fluffy", ("id_ed25519",))

    with Served(make_cache("a")) as a:
        inventory = cache_inventory({"a": a.port}, "defaults: {ssh: {user: fluffy}}\n")
        with Collector(inventory, Sources(KEY, open_runner=refuse)) as collector:
            node = collector.first_status().node("a")
    assert opened.is_set()
    assert (node.state, node.service.state) == ("healthy", "not reached")
    assert node.service.reason is not None
    assert any("not reached over SSH" in note for note in node.notes)


def test_a_fleet_on_loopback_without_ssh_is_not_asked_over_ssh() -> None:
    def fail(host: ResolvedHost) -> Runner:
        raise AssertionError(host.name)

    sources = Sources(KEY, open_runner=fail)
    with Served(make_cache("a")) as a, Collector(cache_inventory({"a": a.port}), sources) as collector:
        assert collector.first_status().node("a").service.state == "not asked"


@pytest.fixture
def head() -> ScriptedHead:
    """A head's API on this machine's loopback."""
    head = ScriptedHead()
    head.replies[SUMMARY_PATH] = (200, b'{"fallbacks_by_reason": {"timeout": 1}}')
    return head


def elsewhere(url: str, bind: str = "127.0.0.1") -> Inventory:
    """A head that is reached over SSH, with the API of `url`."""
    api = f"{{bind: {bind}, port: {url.rpartition(':')[2]}, keys_file: /keys}}"
    end = "{network: loopback, address: 127.0.0.1, port: 1}"
    text = "fleet: {name: f}\nmodel: {path: /m}\ndefaults: {ssh: {user: fluffy}}\nhosts:\n"
    return parse_inventory(f"{text}  head: {{role: head, api: {api}, endpoints: [{end}]}}\n".encode(), "f.yaml")


def open_here(host: ResolvedHost) -> Runner:
    return LocalRunner(host.name)


@pytest.mark.usefixtures("mac")
def test_an_api_on_the_loopback_of_a_host_elsewhere_is_asked_over_ssh(head: ScriptedHead) -> None:
    with serve(head, time.time) as url, Collector(elsewhere(url), Sources(KEY, open_runner=open_here)) as collector:
        status = collector.first_status()
    assert status.totals.fallbacks_by_reason == {"timeout": 1}
    assert not any("no links" in note for note in status.node("head").notes)
    assert head.looks == 1


def test_whoever_listens_here_at_the_port_of_a_host_elsewhere_is_not_asked(head: ScriptedHead) -> None:
    with serve(head, time.time) as url, Collector(elsewhere(url), Sources(KEY, Secret(b"open sesame"))) as collector:
        [note] = collector.first_status().node("head").notes
    assert note.endswith("its API is on its host's loopback, where it is asked over SSH only")
    assert head.looks == 0


@pytest.mark.usefixtures("mac")
def test_an_api_that_has_not_answered_from_here_yet_is_asked_over_ssh(head: ScriptedHead) -> None:
    with serve(head, time.time) as url:
        inventory, sources = elsewhere(url, "0.0.0.0"), Sources(KEY, open_runner=open_here)
        collector = Collector(inventory, sources)
        [over_ssh] = [poll for poll in collector._polls(inventory.host("head")) if poll.source == "ssh"]
        assert over_ssh.ask().api is not None
        look = Look[ApiAnswer]().succeed(ApiAnswer({}, {}, (), {}))
        collector._board.change("head", lambda heard: heard.with_look("api", look))
        assert over_ssh.ask().api is None


def test_an_api_key_is_sent_where_there_is_one_and_shown_to_nobody() -> None:
    sources = Sources(KEY, Secret(b"open sesame"))
    assert sources.api_headers == {"Authorization": "Bearer open sesame"}
    assert Sources(KEY).api_headers == {}
    assert "sesame" not in repr(sources)
