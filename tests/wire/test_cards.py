from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import InputError, ReleaseMismatch
from kakeya_ops.wire.cards import Card, CardsExchange, Endpoint, Load, NodeMemory, PoolUse

CARD = Card(
    node="allens",
    role="worker",
    epoch=1_700_000_000_000_000_000,
    instance="ab" * 16,
    version="0.1.0",
    endpoints=(
        Endpoint(network="thunderbolt", address="169.254.27.104", port=53051, priority=100, trusted=True),
        Endpoint(network="lan", address="allens.local", port=53051),
    ),
    identity="cd" * 32,
    identity_document={"model_type": "llama", "layout": {"parts": [{"window": None}]}},
    runtime={"mlx": "0.32.4"},
    load=Load(queued=1, running=1, queue_seconds=2.5),
    prefill_tokens_per_second=812.5,
    free_memory_bytes=4 << 30,
    pool=PoolUse(used_bytes=1, budget_bytes=4 << 30),
    counters={"tokens_computed": 128, "compute_seconds": 0.25},
    issued_at=1_700_000_000.5,
    ttl_seconds=15.0,
    healthy=True,
    memory=NodeMemory(active_bytes=14 << 30, peak_bytes=15 << 30, footprint_bytes=16 << 30),
)


def test_cards_survive_the_wire() -> None:
    assert Card.parse(CARD.encode()) == CARD
    exchange = CardsExchange(cards=(CARD, CARD.model_copy(update={"node": "head"})))
    assert CardsExchange.parse(exchange.encode()) == exchange


RECORDED = Path(__file__).parent / "recorded"


def test_a_card_of_an_older_release_tells_neither_a_reason_nor_its_memory_and_speaks_version_1() -> None:
    card = Card.parse((RECORDED / "older/card.json").read_bytes())
    assert (card.node, card.reason, card.memory, card.wire) == ("allens", None, None, 1)


def test_what_a_newer_release_adds_to_a_card_is_passed_on_as_it_came() -> None:
    data = (RECORDED / "newer/card.json").read_bytes()
    card = Card.parse(data)
    assert (card.node, card.endpoints[0].port, card.load.running) == ("allens", 53051, 1)
    passed_on = json.loads(card.encode())
    assert passed_on == passed_on | json.loads(data)


def test_a_card_that_cannot_be_read_is_left_out_of_its_exchange_by_name() -> None:
    exchange = CardsExchange.parse((RECORDED / "newer/exchange.json").read_bytes())
    assert [card.node for card in exchange.cards] == ["head"]
    [relay, nameless] = exchange.unread
    assert relay.node == "attic"
    assert "role" in relay.reason
    assert nameless.node == "a node without a name"
    exchange.check("head")
    with pytest.raises(ReleaseMismatch, match="attic: Card has a wrong role") as caught:
        exchange.check("attic")
    assert caught.value.reason == "release"


@pytest.mark.parametrize("data", [b"{}", b'{"cards": 1}', b"[]", b'{"cards": [' + b"[" * 5000, b"\xff"])
def test_what_is_no_exchange_is_refused_whole(data: bytes) -> None:
    with pytest.raises(InputError, match="CardsExchange"):
        CardsExchange.parse(data)


def test_whole_numbers_of_counters_stay_whole() -> None:
    counters = Card.parse(CARD.encode()).counters
    assert [type(value) for value in counters.values()] == [int, float]


def test_a_node_without_a_model_has_no_identity() -> None:
    cache = CARD.model_copy(update={"role": "cache", "identity": None, "identity_document": None, "runtime": None})
    assert Card.parse(cache.encode()).identity is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node", ""),
        ("node", "x" * 257),
        ("role", "king"),
        ("epoch", -1),
        ("instance", "1"),
        ("endpoints", [{"network": "lan", "address": "a", "port": 0}]),
        ("endpoints", [{"network": "lan", "address": "a", "port": 65536}]),
        ("endpoints", [{"network": "lan", "address": "a", "port": 1}] * 17),
        ("identity", "short"),
        ("identity_document", []),
        ("runtime", {"mlx": 1}),
        ("load", {"queued": 1}),
        ("prefill_tokens_per_second", float("nan")),
        ("pool", None),
        ("counters", {"a": "1"}),
        ("counters", {"a": float("inf")}),
        ("counters", {"a": True}),
        ("counters", {f"c{number}": 1 for number in range(257)}),
        ("healthy", 1),
        ("reason", "x" * 4097),
        ("memory", {"active_bytes": -1}),
        ("wire", -1),
    ],
)
def test_a_card_with_a_wrong_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field):
        Card.parse(json.dumps(CARD.to_json() | {field: value}).encode())


def test_a_document_of_endless_depth_is_refused() -> None:
    deep = "[" * 5000 + "]" * 5000
    data = json.dumps(CARD.to_json() | {"identity_document": {"x": "HERE"}}).replace('"HERE"', deep)
    with pytest.raises(InputError, match="recursion"):
        Card.parse(data.encode())


def test_too_many_cards_are_refused() -> None:
    with pytest.raises(InputError, match="cards"):
        CardsExchange.parse(json.dumps({"cards": [CARD.to_json()] * 257}).encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(sorted(Card.model_fields)), JSON, max_size=3))
def test_hostile_cards_are_refused_or_read_but_never_anything_else(changes: dict[str, Any]) -> None:
    try:
        card = Card.parse(json.dumps(CARD.to_json() | changes).encode())
    except InputError:
        return
    assert Card.parse(card.encode()) == card
