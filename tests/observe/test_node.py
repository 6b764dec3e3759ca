"""Which endpoints are asked, and which answer counts."""

from __future__ import annotations

from deploy.states import KEY, card, inventory
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.node import Asker, node_requests, read_node, usable_endpoints
from kakeya_ops.observe.state import Health, Unknown
from kakeya_ops.probes import Finding
from kakeya_ops.secret import Secret
from kakeya_ops.wire.signing import REPLY_HEADER, nonce_of, sign_reply

HOST = inventory().host("allens")
ASKER = Asker(KEY, "ours")
DOWN = Finding(7, b"")


def endpoint(**values: object) -> Endpoint:
    return Endpoint(**{"network": "lan", "address": "10.0.0.1", "port": 1, "trusted": True, **values})  # type: ignore[arg-type]


def answer(status: int, body: bytes, *headers: str) -> Finding:
    lines = "".join(f"{header}\r\n" for header in headers)
    return Finding(0, f"HTTP/1.1 {status} x\r\n{lines}\r\n".encode() + body)


def test_a_host_is_asked_in_clear_where_it_can_be_the_preferred_endpoint_first() -> None:
    ends = (endpoint(priority=1), endpoint(priority=9, port=2), endpoint(priority=99, port=3, trusted=False))
    host = HOST.model_copy(update={"endpoints": ends})
    assert [end.port for end in usable_endpoints(host)] == [2, 1, 3]
    assert list(node_requests(host, ASKER)) == ["health_0", "card_0", "health_1", "card_1"]
    secured = host.model_copy(update={"endpoints": ends[2:]})
    assert [request.url for request in node_requests(secured, ASKER).values()] == [
        "https://allens.kakeya.internal:3/healthz",
        "https://allens.kakeya.internal:3/v1/card",
    ]


def test_the_first_endpoint_that_answers_counts() -> None:
    host = HOST.model_copy(update={"endpoints": (endpoint(priority=9), endpoint(port=2))})
    requests = node_requests(host, ASKER)
    body = card("allens").encode()
    mac = sign_reply(KEY, nonce_of(requests["card_1"].headers), 200, body)
    well = answer(200, b'{"node": "allens", "reason": null}')
    findings = {
        "health_0": DOWN,
        "card_0": DOWN,
        "health_1": well,
        "card_1": answer(200, body, f"{REPLY_HEADER}: {mac}"),
    }
    node = read_node(requests, findings)
    assert node.health == Health(True)
    assert node.card == card("allens")


def test_nothing_that_answers_is_told_apart_from_what_is_unknown() -> None:
    requests = node_requests(HOST, ASKER)
    assert read_node(requests, {"health_0": DOWN, "card_0": DOWN}).health is None
    assert isinstance(read_node(requests, {}).health, Unknown)
    assert isinstance(read_node(requests, dict.fromkeys(requests, Finding(127, b""))).health, Unknown)


def test_a_head_without_endpoints_is_asked_at_its_api() -> None:
    head = inventory().host("head").model_copy(update={"endpoints": ()})
    requests = node_requests(head, ASKER)
    assert list(requests) == ["health_api"]
    node = read_node(requests, {"health_api": answer(200, b'{"status": "ok"}')})
    assert node.health == Health(True)
    assert isinstance(node.card, Unknown)
    sick = read_node(requests, {"health_api": answer(503, b"")}).health
    assert isinstance(sick, Health)
    assert not sick.healthy


def test_requests_never_hold_the_key() -> None:
    key = Secret(bytes(range(32)))
    for request in node_requests(HOST, Asker(key, "ours")).values():
        assert key.reveal().hex().encode() not in request.config()
