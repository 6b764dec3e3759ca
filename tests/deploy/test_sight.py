"""One call shows what a host and its node see of all others, and what of that may still change."""

from __future__ import annotations

import pytest

from deploy.states import PLANNER_INVENTORY, inventory
from deploy.test_cross_check import node
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.sight import Sight, look_around
from kakeya_ops.errors import ConnectFailed, PeerRefused, PeerUnreachable
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.wire.cards import Card
from serving.running import KEY, Served

ERROR = PeerUnreachable("vault", "it is silent")
WAY = Endpoint(network="lan", address="127.0.0.1", port=1)


def fleet(head: int, vault: int, more: str = "") -> Hosts:
    text = PLANNER_INVENTORY.replace("{name: pair}", "{name: pair, tenant: tests}")
    text = text.replace("port: 51051", f"port: {head}").replace("port: 53053", f"port: {vault}")
    return Hosts(inventory(text + more), lambda host: LocalRunner(host.name), KEY)


@pytest.mark.usefixtures("home")
def test_all_others_are_seen_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    run = LocalRunner.run
    monkeypatch.setattr(LocalRunner, "run", lambda self, *a, **k: calls.append(a) or run(self, *a, **k))
    with Served(node("head")) as head, Served(node("vault")) as vault, fleet(head.port, vault.port) as hosts:
        hosts.places("head")
        calls.clear()
        head.node.cards.merge([vault.node.card()])
        seen = look_around(hosts, "head", ["vault", "allens"])
    assert len(calls) == 1
    assert isinstance(seen.own, Card)
    assert isinstance(seen.cards["vault"], Card)
    assert isinstance(seen.cards["allens"], PeerUnreachable)
    assert (str(seen.own.node), seen.cards["vault"].node) == ("head", "vault")
    assert "vault" in seen.known
    assert "no process" in str(seen.reached)


def card(name: str) -> Card:
    with Served(node(name)) as served:
        return served.node.card()


def test_time_may_show_more_of_those_that_answer_alone() -> None:
    own, vault = card("head"), card("vault")
    assert Sight(own, {"vault": vault}).waits
    assert Sight(own, {"vault": vault}, frozenset({"vault"})).waits
    assert Sight(own, {"vault": vault}, frozenset(), {"vault": WAY}).waits
    assert not Sight(own, {"vault": vault}, frozenset({"vault"}), {"vault": WAY}).waits
    assert not Sight(own, {"vault": vault}, frozenset({"vault"}), ERROR).waits
    assert not Sight(own, {"vault": ERROR}).waits
    assert not Sight(ERROR, {"vault": vault}).waits


def test_a_host_that_cannot_be_asked_sees_nothing_and_is_not_waited_for() -> None:
    error = ConnectFailed("head", "no route")
    seen = Sight.blind(error, ["vault", "allens"])
    assert seen.cards == {"vault": error, "allens": error}
    assert (seen.own, seen.reached, seen.known, seen.waits) == (error, error, frozenset(), False)


@pytest.mark.usefixtures("home")
def test_a_node_without_an_endpoint_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served(node("head")) as head, fleet(head.port, 1) as hosts:
        monkeypatch.setattr("kakeya_ops.deploy.sight.usable_endpoints", lambda host: [])
        seen = look_around(hosts, "head", ["vault"])
    for found in (seen.own, seen.cards["vault"]):
        assert isinstance(found, PeerRefused)
        assert "no endpoint" in found.message
