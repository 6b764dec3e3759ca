"""What a lane does that no loopback fleet shows; whole drills are in tests/flows/test_drill.py."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kakeya_ops.drill.asking import LOCAL, Asked, Inquirer
from kakeya_ops.drill.catalogue import Kind, kind_named
from kakeya_ops.drill.lane import Lane, Scene
from kakeya_ops.drill.nodes import NodeDoor, Operator
from kakeya_ops.errors import PeerUnreachable, RefusedError
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from kakeya_ops.verify.head_client import Completion
from serving.running import KEY, TENANT, Served, make_cache, simple_identity
from trust import TlsEndpoint, certificates, tls_served

OPERATOR = Operator(KEY, TENANT, certificates("drill"))
REMOTE = {"node": "cache", "payload_bytes": 1000}


def make_node() -> Node:
    return Node(NodeSettings(NodeId("cache"), "cache", TENANT, (KEY,), drill=True), BlockPool(2**20), simple_identity())


class Told:
    """A head that answers every request with `receipt`, and calls `meanwhile` before it does unless it is alone."""

    def __init__(self, receipt: dict[str, Any] | None = None, meanwhile: Callable[[], Any] = lambda: None) -> None:
        self.receipt = {"request_id": "r", "remote": REMOTE, "decision": {"reason": "demanded"}} | (receipt or {})
        self.meanwhile = meanwhile
        self.asked = 0

    def node(self, name: str) -> Mapping[str, Any]:
        return {"node": name, "usable": True, "epoch": 1}

    def fallbacks(self) -> Mapping[str, float]:
        return {}

    def body(self) -> bytes:
        return b"{}"

    def ask(self, body: bytes, modes: frozenset[str], nonce: str, node: str | None = None) -> Asked:
        if modes != LOCAL:
            self.asked += 1
            self.meanwhile()
        return Asked(Completion("r", 1, "", ("t",), ()), self.receipt, 0.2)

    def wait(self, condition: Callable[[], bool], seconds: float) -> float | None:
        return 0.0 if condition() else None


def named(name: str) -> Kind:
    found = kind_named(name)
    assert found is not None
    return found


@contextlib.contextmanager
def drilling(served: Served, told: Told, *, tls: bool = False) -> Iterator[Lane]:
    way = (TlsEndpoint if tls else Endpoint)("127.0.0.1", served.port)
    with contextlib.closing(NodeDoor("cache", [way], OPERATOR)) as door:
        yield Lane(Scene(cast(Inquirer, told), door, door, OPERATOR, [way]))


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(make_node()) as served:
        yield served


@pytest.mark.parametrize("name", ["clear-text", "foreign-certificate"])
def test_where_tls_is_spoken_an_intruder_is_refused_and_requests_go_on(name: str) -> None:
    with tls_served(make_node(), certificates("cache")) as served, drilling(served, Told(), tls=True) as lane:
        result = lane.attempt(named(name))
    assert (result.verdict, result.outcome, result.worker) == ("safe", "remote", "cache")
    assert "TLS only" in result.detail or "does not know the authority" in result.detail


@pytest.mark.parametrize("name", ["clear-text", "foreign-certificate"])
def test_where_nobody_speaks_tls_there_is_nobody_to_refuse(served: Served, name: str) -> None:
    with drilling(served, Told()) as lane:
        result = lane.attempt(named(name))
    assert (result.verdict, "speaks TLS" in result.detail) == ("skipped", True)


def test_a_node_that_lets_an_intruder_in_has_failed() -> None:
    careless = certificates("cache")
    careless.server.verify_mode = ssl.CERT_NONE
    with tls_served(make_node(), careless) as served, drilling(served, Told(), tls=True) as lane:
        result = lane.attempt(named("foreign-certificate"))
    assert (result.verdict, "answered somebody" in result.detail) == ("failed", True)


def test_a_request_that_did_not_meet_the_fault_is_sent_again(served: Served) -> None:
    with drilling(served, told := Told()) as lane:
        result = lane.attempt(named("cut-first"))
    assert (result.verdict, "no request met" in result.detail) == ("unknown", True)
    assert told.asked == 3 + 1  # the last is the one for which nothing is armed


def test_a_worker_that_is_late_once_is_asked_again_before_it_is_called_broken(served: Served) -> None:
    told = Told()

    def be_late() -> None:
        told.receipt["remote"] = REMOTE if told.asked > 1 else None

    told.meanwhile = be_late
    with drilling(served, told) as lane:
        assert lane.ask_undisturbed().receipt["remote"] == REMOTE


def test_what_is_claimed_is_taken_back_when_the_request_breaks(served: Served) -> None:
    seen: list[bool] = []

    def fail() -> None:
        seen.append(bool(served.node.cards.card("victim")))
        raise PeerUnreachable("http://h", "the head is gone")

    with drilling(served, Told(meanwhile=fail)) as lane:
        victim = SimpleNamespace(node="victim", card=make_cache("victim").card)
        told = Lane(replace(lane.scene, worker=cast(NodeDoor, victim))).attempt(named("unhealthy-card"))
    assert (told.verdict, "the head is gone" in told.detail, seen[0]) == ("failed", True, True)
    card = served.node.cards.card("victim")
    assert card is not None
    assert card.healthy


def test_who_has_left_arms_nothing_more(served: Served) -> None:
    with drilling(served, Told()) as lane:
        lane.leave()
        result = lane.attempt(named("hang-up"))
    assert (result.verdict, result.detail) == ("skipped", "cache: the drill is over")
    assert served.node.faults.armed is None


def test_leaving_disarms_what_another_thread_has_armed(served: Served) -> None:
    armed: list[bool] = []
    with drilling(served, told := Told()) as lane:

        def leave() -> None:
            armed.append(served.node.faults.armed is not None)
            lane.leave()
            armed.append(served.node.faults.armed is not None)

        told.meanwhile = leave
        lane.attempt(named("hang-up"))
    assert armed[:2] == [True, False]


def test_a_worker_that_computes_nothing_even_undisturbed_is_no_worker_to_drill(served: Served) -> None:
    told = Told({"remote": None, "fallback": {"message": "it is asleep"}})
    with drilling(served, told) as lane, pytest.raises(RefusedError, match="it is asleep"):
        lane.measure()


def test_a_worker_that_takes_no_part_is_said_to() -> None:
    with Served(make_cache()) as served, drilling(served, Told()) as lane, pytest.raises(RefusedError, match="no part"):
        lane.check()
