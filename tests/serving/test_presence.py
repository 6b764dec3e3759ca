"""Who a node is, whatever it can do."""

from __future__ import annotations

import json

import pytest

from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.presence import NodeSettings, Presence
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import CardsExchange
from serving.running import KEY, TENANT, make_cache


def test_it_signs_with_the_newest_key_and_answers_to_all() -> None:
    node = make_cache("vault", keys=(KEY,))
    assert (node.id, node.role, node.fleet_key) == ("vault", "cache", KEY)
    assert (node.caller.node, node.caller.epoch, node.caller.instance) == ("vault", node.epoch, node.instance)
    assert make_cache(keys=()).fleet_key is None


def test_a_card_that_cannot_be_read_is_counted_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    node, guest = make_cache("vault"), make_cache("guest").card()
    document = {"cards": [guest.to_json(), guest.to_json() | {"node": "attic", "role": "relay"}]}
    for _ in range(2):
        node.learn(CardsExchange.parse(json.dumps(document).encode()))
    assert node.cards.card("guest") == guest
    assert node.counters.value(CounterName.CARDS_UNREAD, worker="attic") == 2
    assert [record.message for record in caplog.records] == [
        "a card cannot be read: Card has a wrong role: Input should be 'head', 'worker' or 'cache'"
    ]


def test_it_is_always_some_kind_of_node() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Presence(NodeSettings(NodeId("n"), "cache", TENANT))  # type: ignore[abstract]


def test_all_its_clients_share_one_room() -> None:
    node = make_cache()
    assert node.caller.room is node.caller.room is node.room
