"""Nodes and APIs asked over real connections, and what is made of answers that are none."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from faults.proxy import FaultProxy
from kakeya_ops.errors import PeerError, PeerRefused, PeerUnreachable
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.peer.connection import Endpoint, StopFlag
from kakeya_ops.secret import Secret
from kakeya_ops.status.asking import (
    NODES_PATH,
    SUMMARY_PATH,
    ApiAnswer,
    ApiDoor,
    NodeDoor,
    NoWay,
    accept,
    api_endpoints,
    read_api,
    read_document,
)
from ports import choose_ports
from serving.running import Served, make_cache, make_caller
from status.fleets import cache_inventory
from status.samples import card
from verify.scripted_head import ScriptedHead, serve

HEAD = """
fleet: {{name: pair}}
model: {{path: /models/tiny}}
hosts:
  head:
    role: head
    api: {{bind: "{bind}", port: {port}, keys_file: /keys}}
    endpoints: [{{network: lan, address: 10.0.0.7, port: 9, trusted: true}}]
"""


@pytest.fixture
def served() -> Iterator[Served]:
    with Served(make_cache("vault")) as served:
        yield served


@pytest.fixture
def open_door() -> Iterator[Callable[..., NodeDoor]]:
    """Opens doors and closes them in the end."""
    doors: list[NodeDoor] = []

    def open_(inventory: Inventory, name: str = "vault", stop: StopFlag | None = None, **caller: Secret) -> NodeDoor:
        doors.append(NodeDoor(inventory.host(name), make_caller("status", **caller), stop or StopFlag()))
        return doors[-1]

    yield open_
    for door in doors:
        door.close()


def test_a_node_says_how_it_is_and_whom_it_knows(served: Served, open_door: Callable[..., NodeDoor]) -> None:
    served.node.cards.merge([card("allens")])
    answer = open_door(cache_inventory({"vault": served.port})).ask()
    assert answer.health.healthy
    assert answer.card is not None
    assert (answer.card.node, answer.card.instance) == ("vault", served.node.instance)
    assert [other.node for other in answer.known] == ["allens"]


def test_a_node_with_another_key_is_well_and_says_no_more(served: Served, open_door: Callable[..., NodeDoor]) -> None:
    answer = open_door(cache_inventory({"vault": served.port}), key=Secret(b"another key of thirty-two bytes!")).ask()
    assert answer.health.healthy
    assert answer.card is None
    assert answer.fault is not None
    assert "wrong key" in answer.fault


def test_another_node_in_its_place_is_named(served: Served, open_door: Callable[..., NodeDoor]) -> None:
    with pytest.raises(PeerRefused, match="another node, 'vault', answers"):
        open_door(cache_inventory({"allens": served.port}), "allens").ask()


def test_the_next_endpoint_is_tried_and_remembered(served: Served, open_door: Callable[..., NodeDoor]) -> None:
    [closed] = choose_ports(1)
    with FaultProxy(("127.0.0.1", served.port)) as proxy:
        text = cache_inventory({"vault": closed}).model_dump()
        first = text["hosts"]["vault"]["endpoints"][0]
        text["hosts"]["vault"]["endpoints"] = (first | {"priority": 90}, first | {"port": proxy.port})
        door = open_door(Inventory.model_validate(text))
        assert door.ask().card is not None
        assert door.ask().card is not None
        proxy.set("refuse")
        proxy.sever()
        with pytest.raises(PeerUnreachable, match=r"refused.*; .*|reset.*; .*"):
            door.ask()


def test_whoever_stops_does_not_wait_for_a_node_that_hangs(served: Served, open_door: Callable[..., NodeDoor]) -> None:
    stop = StopFlag()
    with FaultProxy(("127.0.0.1", served.port)) as proxy:
        proxy.set("ignore")
        door = open_door(cache_inventory({"vault": proxy.port}), stop=stop)
        ended: list[bool] = []

        def ask() -> None:
            with pytest.raises(PeerError):
                door.ask()
            ended.append(True)

        asking = threading.Thread(target=ask)
        asking.start()
        assert proxy.wait_until(lambda proxy: proxy.accepted == 1)
        stop.stop()
        asking.join(2)
        assert not asking.is_alive()
    assert ended == [True]


AskApi = Callable[..., ApiAnswer]


@pytest.fixture
def head() -> ScriptedHead:
    head = ScriptedHead()
    head.replies[SUMMARY_PATH] = (200, b'{"fallbacks_by_reason": {"timeout": 1}}')
    return head


@pytest.fixture
def ask_api(head: ScriptedHead) -> Iterator[AskApi]:
    """Asks the API of `head` as if it were the one called ``name``."""
    host = parse_inventory(HEAD.format(bind="127.0.0.1", port=1).encode(), "f.yaml").host("head")
    with serve(head, lambda: 0.0) as url:
        endpoint = Endpoint("127.0.0.1", int(url.rpartition(":")[2]), "api")

        def ask(name: str = "head") -> ApiAnswer:
            door = ApiDoor(host.model_copy(update={"name": name}), [endpoint], {"Authorization": "Bearer key"})
            with contextlib.closing(door):
                return door.ask(StopFlag())

        yield ask


def test_a_heads_api_tells_of_its_nodes(head: ScriptedHead, ask_api: AskApi) -> None:
    answer = ask_api()
    assert answer.head["node"] == "head"
    assert set(answer.nodes) == {node["node"] for node in head.nodes}
    assert answer.summary == {"fallbacks_by_reason": {"timeout": 1}}


def test_another_heads_api_is_not_taken_for_this_ones(ask_api: AskApi) -> None:
    with pytest.raises(PeerRefused, match="another head, 'head', answers"):
        ask_api("second")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((401, b"{}"), "give --api-key-file"),
        ((500, b'{"error": {"message": "no"}}'), "HTTP status 500: no"),
        ((200, b"<html>"), "something else answers"),
        ((200, b"[" * 100000), "something else answers"),
        ((200, b'{"head": {"node": "head"}}'), "lacks the head or the nodes"),
    ],
)
def test_what_is_no_answer_is_told(head: ScriptedHead, ask_api: AskApi, reply: tuple[int, bytes], said: str) -> None:
    head.replies[NODES_PATH] = reply
    with pytest.raises(PeerRefused, match=said):
        ask_api()


@pytest.mark.parametrize(
    ("bind", "addresses"), [("127.0.0.1", ["127.0.0.1"]), ("0.0.0.0", ["10.0.0.7"]), ("::1", ["::1"])]
)
def test_an_api_is_looked_for_where_it_is_bound_or_where_its_host_is(bind: str, addresses: list[str]) -> None:
    host = parse_inventory(HEAD.format(bind=bind, port=8080).encode(), "f.yaml").host("head")
    assert [end.address for end in api_endpoints(host)] == addresses
    assert {end.port for end in api_endpoints(host)} == {8080}


def test_plain_answers() -> None:
    assert read_document("head", 200, b'{"a": 1}') == accept("head", 200, {"a": 1})
    with pytest.raises(PeerRefused, match="lacks"):
        read_api("head", {"head": {"node": "head"}, "nodes": [1]}, {})


def test_where_no_way_leads_nothing_is_said_of_the_node(open_door: Callable[..., NodeDoor]) -> None:
    document = cache_inventory({"vault": 9}).model_dump()
    document["hosts"]["vault"]["endpoints"] = (
        {"network": "n", "address": "no-such-host.invalid", "port": 9, "trusted": True},
    )
    with pytest.raises(NoWay):
        open_door(Inventory.model_validate(document)).ask()


def test_a_port_where_nobody_listens_says_that_the_node_is_not_there(open_door: Callable[..., NodeDoor]) -> None:
    [closed] = choose_ports(1)
    with pytest.raises(PeerUnreachable) as caught:
        open_door(cache_inventory({"vault": closed})).ask()
    assert not isinstance(caught.value, NoWay)
