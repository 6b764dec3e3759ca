from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kakeya_ops.bench.bystanders import Census, OwnWork, describe_bystanders, take_census


def census(requests: float, computed: float = 0, epoch: int = 7, head_epoch: int = 1) -> Census:
    nodes: list[Mapping[str, Any]] = [
        {"node": "worker", "role": "worker", "epoch": epoch, "counters": {"tokens_computed": computed}},
        {"node": "silent", "role": None, "epoch": None, "counters": {}},
    ]
    network = {"head": {"node": "head", "role": "head", "epoch": head_epoch}, "nodes": nodes}
    return take_census({"counters": {"requests": requests}}, network)


OWN = OwnWork(4, {"worker": 100})


def test_nobody_else_was_there() -> None:
    assert describe_bystanders(census(10, 50), census(14, 150), OWN, [0, 0]) == ()


def test_other_requests_are_counted() -> None:
    [said] = describe_bystanders(census(10), census(17, 100), OWN, [0])
    assert said == "the head took 3 requests of others meanwhile"


def test_requests_that_began_before_are_seen_under_way() -> None:
    [said] = describe_bystanders(census(10), census(14, 100), OWN, [0, 2, 1])
    assert said == "2 requests of others were under way at the head"


def test_what_a_worker_computed_for_another_head_is_seen() -> None:
    [said] = describe_bystanders(census(10, 50), census(14, 950), OWN, [])
    assert said == "worker computed 800 tokens for others meanwhile"


def test_a_restart_is_told_and_its_counters_are_not_compared() -> None:
    [said] = describe_bystanders(census(10, 50, epoch=7), census(14, 9000, epoch=8), OWN, [])
    assert said == "worker was restarted; what was measured of it before is left out"


def test_a_late_card_is_no_bystander() -> None:
    assert describe_bystanders(census(10, 50), census(14, 50), OWN, []) == ()


def test_a_head_that_says_little_is_no_error() -> None:
    assert take_census({}, {"nodes": "none"}) == Census(0.0, {}, {})
