"""Who is there, the ways, and a way that works in one direction only."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from front.test_network import ABSENT, CARD, KNOWN, LINK
from kakeya_ops.front.topology import Directions, describe_topology
from kakeya_ops.serving.compatibility import Difference
from kakeya_ops.serving.fleet import Known

BROKEN = replace(LINK, last_error="store: refused")


def silent(issued_at: float, name: str = "store") -> Known:
    """A node that the head does not reach, with its newest card."""
    card = CARD.model_copy(update={"issued_at": issued_at})
    return Known(name, "cache", card, BROKEN, None, usable=False)


def test_links_say_what_the_way_is_worth() -> None:
    topology = describe_topology("head", [KNOWN, ABSENT], {"worker"})
    assert topology["links"][0] == {
        "from": "head",
        "to": "store",
        "up": True,
        "one_way": False,
        "network": "loopback",
        "endpoint": "127.0.0.1:5001",
        "rtt_seconds": 0.001,
        "bytes_per_second": 1e9,
        "error": None,
    }
    assert (topology["links"][1]["error"], topology["links"][1]["one_way"]) == ("worker: refused", True)
    json.dumps(topology, allow_nan=False)


@pytest.mark.parametrize(
    ("known", "state"),
    [
        (KNOWN, "usable"),
        (replace(KNOWN, usable=False), "not used"),
        (replace(KNOWN, difference=Difference("window", 1, 2), usable=False), "different cache identity"),
        (replace(KNOWN, card=CARD.model_copy(update={"healthy": False})), "failing"),
        (replace(KNOWN, conflict=True), "two nodes with this id"),
        (ABSENT, "unreachable"),
        (replace(ABSENT, link=None), "unreachable"),
    ],
)
def test_a_node_is_in_one_state(known: Known, state: str) -> None:
    assert describe_topology("head", [known], ())["nodes"] == [
        {"node": "head", "role": "head", "state": "here"},
        {"node": known.node, "role": known.role, "state": state},
    ]


def test_a_node_that_goes_on_to_send_cards_reaches_the_head() -> None:
    directions = Directions()
    assert directions.observe([silent(1.0)]) == set()
    assert directions.observe([silent(1.0)]) == set()
    assert directions.observe([silent(3.0)]) == {"store"}
    assert directions.observe([KNOWN]) == set()
    assert directions.observe([silent(5.0)]) == set()


@pytest.mark.parametrize("other", [replace(KNOWN, node="other"), silent(2.0, "other"), ABSENT])
def test_another_node_may_have_passed_the_card_on(other: Known) -> None:
    directions = Directions()
    directions.observe([silent(1.0), other])
    assert directions.observe([silent(3.0), other]) == set()


def test_what_another_node_passed_on_before_it_went_is_no_sign() -> None:
    directions, other = Directions(), replace(KNOWN, node="other")
    assert directions.observe([silent(1.0)]) == set()
    directions.observe([silent(3.0), other])
    assert directions.observe([silent(5.0)]) == set()
    assert directions.observe([silent(5.0)]) == set()
    assert directions.observe([silent(6.0)]) == {"store"}


def test_whether_a_way_that_is_down_is_one_way_is_not_known() -> None:
    [link] = describe_topology("head", [ABSENT], ())["links"]
    assert (link["up"], link["one_way"]) == (False, None)


def test_a_node_without_a_card_says_nothing() -> None:
    directions = Directions()
    directions.observe([ABSENT])
    assert directions.observe([ABSENT]) == set()
