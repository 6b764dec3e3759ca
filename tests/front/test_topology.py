"""Who is there, the ways, and a way that works in one direction only."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from front.test_network import ABSENT, CARD, KNOWN, LINK
from kakeya_ops.front.topology import Directions, describe_topology
from kakeya_ops.serving.compatibility import Difference
from kakeya_ops.serving.fleet import Known
from kakeya_ops.serving.quarantine import Held
from kakeya_ops.wire.cards import Card, CardLink
from serving.findings import EVIDENCE

BROKEN = replace(LINK, last_error="store: refused")


def saying(error: str | None, issued_at: float = 1.0) -> Card:
    """The card of a node that found the way to the head so."""
    return CARD.model_copy(
        update={"issued_at": issued_at, "links": (CardLink(node="head", network="lan", error=error),)}
    )


def silent(issued_at: float, name: str = "store", error: str | None = None) -> Known:
    """A node that the head does not reach, with its newest card."""
    return Known(name, "cache", saying(error, issued_at), BROKEN, None, usable=False)


def test_links_say_what_the_way_is_worth() -> None:
    topology = describe_topology("head", [replace(KNOWN, card=saying(None)), ABSENT], {"worker"})
    assert topology["links"][0] == {
        "from": "head",
        "to": "store",
        "up": True,
        "one_way": False,
        "security": "clear",
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
        (replace(KNOWN, held=Held("store", 1.0, EVIDENCE), usable=False), "in quarantine"),
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
    directions = Directions("head")
    assert directions.observe([silent(1.0)]) == set()
    assert directions.observe([silent(1.0)]) == set()
    assert directions.observe([silent(3.0)]) == {"store"}
    assert directions.observe([KNOWN]) == set()
    assert directions.observe([silent(5.0)]) == set()


@pytest.mark.parametrize("other", [replace(KNOWN, node="other"), silent(2.0, "other"), ABSENT])
def test_whoever_passed_the_card_on_it_says_whom_its_node_reaches(other: Known) -> None:
    directions = Directions("head")
    directions.observe([silent(1.0), other])
    assert directions.observe([silent(3.0), other]) == {"store"}


def test_a_node_that_lives_and_does_not_reach_the_head_either_is_no_way() -> None:
    directions = Directions("head")
    directions.observe([silent(1.0)])
    assert directions.observe([silent(3.0, error="no route")]) == set()


def test_a_way_back_that_fails_is_told_of_a_node_that_the_head_reaches() -> None:
    known = [replace(KNOWN, card=saying("no route")), KNOWN]
    assert [link["one_way"] for link in describe_topology("head", known, ())["links"]] == [True, None]


def test_whether_a_way_that_is_down_is_one_way_is_not_known() -> None:
    [link] = describe_topology("head", [ABSENT], ())["links"]
    assert (link["up"], link["one_way"]) == (False, None)


def test_a_node_without_a_card_says_nothing() -> None:
    directions = Directions("head")
    directions.observe([ABSENT])
    assert directions.observe([ABSENT]) == set()
