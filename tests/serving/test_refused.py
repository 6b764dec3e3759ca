"""A node that is up without its model says why, to everybody who asks, and helps nobody."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint, StopFlag
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.presence import NodeSettings
from kakeya_ops.serving.refused import CODE, RefusedNode, make_refused_app
from kakeya_ops.serving.server import Server, Site, address_of, bind
from kakeya_ops.units import NodeId
from serving.running import DEADLINE_SECONDS, KEY, TENANT, TIMEOUTS, make_caller, simple_identity, simple_layout

REASON = "does not fit: working set: 19.0 GiB of 10.7 GiB"


@pytest.fixture(scope="module")
def node() -> RefusedNode:
    return RefusedNode(NodeSettings(NodeId("allens"), "worker", TENANT, (KEY,)), REASON)


@pytest.fixture(scope="module")
def port(node: RefusedNode) -> Iterator[int]:
    listener, ready = bind("127.0.0.1", 0), threading.Event()
    server = Server([Site("peers", make_refused_app(node), [listener])])
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(DEADLINE_SECONDS)
    yield address_of(listener)[1]
    server.stop()
    thread.join(DEADLINE_SECONDS)


def ask(port: int, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_health_is_503_with_the_verdict(port: int) -> None:
    status, body = ask(port, "GET", "/healthz")
    assert status == 503
    assert json.loads(body) | {"age_seconds": 0} == {
        "status": "failing",
        "node": "allens",
        "role": "worker",
        "reason": REASON,
        "age_seconds": 0,
    }


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/kv/lookup"), ("POST", "/v1/kv/fetch"), ("POST", "/v1/prefill"), ("PUT", "/v1/kv/blocks")],
)
def test_whoever_wants_work_is_told_why_there_is_none(port: int, method: str, path: str) -> None:
    status, body = ask(port, method, path)
    assert (status, json.loads(body)["code"], json.loads(body)["message"]) == (503, CODE, REASON)


def test_its_card_is_not_healthy_says_why_and_fits_no_head(node: RefusedNode, port: int) -> None:
    client = PeerClient(NodeId("allens"), Endpoint("127.0.0.1", port), make_caller(), simple_layout(), TIMEOUTS)
    try:
        cards = {card.node: card for card in client.exchange([], StopFlag()).cards}
    finally:
        client.close()
    card = cards["allens"]
    assert (card.healthy, card.reason, card.identity) == (False, REASON, None)
    assert card.memory is not None
    assert (card.memory.footprint_bytes or 0) > 0
    difference = find_difference(card, simple_identity(), None)  # type: ignore[arg-type]
    assert difference is not None
    assert difference.field == "identity"


def test_strangers_are_refused_as_everywhere(node: RefusedNode, port: int) -> None:
    assert ask(port, "GET", "/v1/card")[0] == 401
    assert node.counters.snapshot()[CounterName.REQUESTS_REFUSED] > 0


def test_its_metrics_say_that_it_is_not_healthy(node: RefusedNode, port: int) -> None:
    text = ask(port, "GET", "/metrics")[1].decode()
    found = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert [sample.value for sample in found["kakeya_healthy"]] == [0]
    [info] = found["kakeya_node_info"]
    assert (info.labels["node"], info.labels["role"], info.labels["run"]) == ("allens", "worker", node.instance)
    assert {"kakeya_start_time_seconds", "kakeya_memory_available_bytes"} <= found.keys()


def test_a_long_reason_is_cut() -> None:
    settings = NodeSettings(NodeId("n"), "head", TENANT)
    assert len(RefusedNode(settings, "x" * 5000).card().reason or "") == 1000
