"""Nodes of neighbouring releases understand or refuse each other by name, and never by accident.

``tests/wire/recorded`` has documents as an older and a newer release write them.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_ops.errors import PeerRefused, ReleaseMismatch
from kakeya_ops.inventory import Endpoint
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import nonce_of, sign_reply
from kakeya_ops.wire.version import WIRE_HEADER
from peer.scripted import Request, ScriptedPeer, response
from serving.running import DEADLINE_SECONDS, KEY, Served, make_cache, make_caller, simple_layout

RECORDED = Path(__file__).parents[1] / "wire/recorded"


def post(served: Served, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    """A signed request with any body at all."""
    caller = make_caller("neighbour")
    headers = {**caller.signer.sign("POST", path, body, to=served.node.id), "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=5)
    connection.request("POST", path, body=body, headers=headers)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    assert answer.getheader("X-Kakeya-Wire") == "1"
    connection.close()
    return answer.status, document


@pytest.fixture
def store() -> Iterator[Served]:
    with Served(make_cache("store")) as served:
        yield served


def test_cards_of_an_older_and_a_newer_release_are_taken_and_passed_on(store: Served) -> None:
    older, newer = (json.loads((RECORDED / f"{which}/card.json").read_text()) for which in ("older", "newer"))
    status, known = post(store, "/v1/cards", json.dumps({"cards": [older, newer | {"node": "attic"}]}).encode())
    cards = {card["node"]: card for card in known["cards"]}
    assert (status, set(cards)) == (200, {"store", "allens", "attic"})
    assert cards["attic"] == cards["attic"] | newer | {"node": "attic"}
    assert cards["allens"]["wire"] == 1


def test_an_exchange_goes_on_without_the_cards_that_cannot_be_read(store: Served) -> None:
    status, known = post(store, "/v1/cards", (RECORDED / "newer/exchange.json").read_bytes())
    assert status == 200
    assert "head" in {card["node"] for card in known["cards"]}
    assert store.node.counters.value(CounterName.CARDS_UNREAD, worker="attic") == 1


def test_what_a_newer_release_asks_beyond_is_refused_by_the_name_of_the_field(store: Served) -> None:
    status, error = post(store, "/v1/prefill", (RECORDED / "newer/prefill_request.json").read_bytes())
    assert (status, error["code"]) == (400, "invalid_request")
    assert "does not know: precision" in error["message"]


def test_another_wire_version_is_refused_by_name_on_both_sides(store: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = store.client()
    monkeypatch.setattr("kakeya_ops.wire.signing.wire_headers", lambda: {WIRE_HEADER: "2"})
    with pytest.raises(PeerRefused, match=r"speaks wire version 2, and release .* here speaks version 1") as refused:
        client.card()
    assert (refused.value.status, refused.value.code) == (409, "release_mismatch")
    assert store.node.counters.value(CounterName.REQUESTS_REFUSED, reason="release_mismatch") == 1


def test_a_reply_of_another_wire_version_is_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = response(b"{}", X_Kakeya_Wire="2")
    with ScriptedPeer(lambda request: newer) as peer:
        client = PeerClient(NodeId("attic"), peer.endpoint, make_caller(), simple_layout())
        with pytest.raises(ReleaseMismatch, match=r"^attic: speaks wire version 2"):
            client.card()
        client.close()


def test_a_peer_whose_own_card_cannot_be_read_is_unreachable_by_that_reason() -> None:
    """All the same the cards of others are taken from it, and it goes on being asked."""
    recorded = (RECORDED / "newer/exchange.json").read_bytes()

    def script(request: Request) -> bytes:
        nonce = nonce_of(request.headers)
        return response(recorded, X_Kakeya_Reply_Mac=sign_reply(KEY, nonce, 200, recorded))

    me = make_cache("me")
    with ScriptedPeer(script) as peer:
        ways = [Endpoint(network="n", address="127.0.0.1", port=peer.endpoint.port)]
        exchange = Exchange(me, {NodeId("attic"): ways, NodeId("head"): ways}, period_seconds=0.02)
        exchange.start()
        try:
            assert exchange.wait_until(lambda: exchange.links()["head"].up, DEADLINE_SECONDS)
            assert exchange.wait_until(lambda: "role" in str(exchange.links()["attic"].last_error), DEADLINE_SECONDS)
        finally:
            exchange.stop()
    assert me.cards.card("head") is not None
    assert me.counters.value(CounterName.CARDS_UNREAD, worker="attic") > 0
