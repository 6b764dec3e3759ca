from __future__ import annotations

import pytest

from kakeya_ops.bench.targets import KINDS, Target, demand, parse_expectation
from kakeya_ops.errors import InputError


@pytest.mark.parametrize(
    ("value", "met"), [(0.02, True), (0.021, False), (None, None)], ids=["at the limit", "over it", "unknown"]
)
def test_a_target_is_met_missed_or_not_known(value: float | None, met: bool | None) -> None:
    assert Target(KINDS["hit"], "worker", value).met is met


def test_a_lower_bound_is_met_from_above() -> None:
    assert Target(KINDS["transfer"], "worker", 0.9).met is True
    assert Target(KINDS["transfer"], "worker", 0.7).met is False


def test_an_expectation_has_its_own_limit_or_the_users() -> None:
    assert parse_expectation("hit") == KINDS["hit"]
    theirs = parse_expectation("hit <= 0.5")
    assert (theirs.name, theirs.bound, theirs.limit) == ("hit", "<=", 0.5)
    assert parse_expectation("hit>=1").bound == ">="


@pytest.mark.parametrize("text", ["", "speed", "hit<0.5", "hit<=", "hit<=fast", "hit<=-1", "hit<=0.5<=1"])
def test_what_is_no_expectation_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no expectation"):
        parse_expectation(text)


def test_what_is_demanded_replaces_the_own_limit_and_is_there_even_if_not_measured() -> None:
    own = (Target(KINDS["hit"], "a", 0.03), Target(KINDS["hit"], "b", 0.01), Target(KINDS["overlap"], "a", 1.0))
    found = demand(own, [parse_expectation("hit<=0.02"), parse_expectation("gap")])
    assert [(one.kind.name, one.of, one.demanded, one.met) for one in found] == [
        ("hit", "a", True, False),
        ("hit", "b", True, True),
        ("overlap", "a", False, True),
        ("gap", "", True, None),
    ]
