from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kakeya_ops.drill.catalogue import Kind, kind_named
from kakeya_ops.drill.report import DrillReport, Result, Seen, judge, outcome_of

TOKENS = ("a", "b")
FELL_BACK: dict[str, Any] = {"request_id": "r", "fallback": {"reason": "corrupt", "message": "w: a wrong tag"}}
SEEN = Seen(TOKENS, TOKENS, FELL_BACK, met=1, counted={"corrupt": 1.0}, seconds=1.5)


def kind(name: str = "corrupt-first") -> Kind:
    found = kind_named(name)
    assert found is not None
    return found


def test_a_fault_that_ends_as_expected_is_safe() -> None:
    result = judge(kind(), SEEN, 1.0)
    assert result == Result("corrupt-first", "safe", "corrupt", True, 0.5, "w: a wrong tag", "r")


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"tokens": ("a", "c")}, "failed", "WRONG TOKENS"),
        ({"tokens": ("a",)}, "failed", "WRONG TOKENS"),
        ({"met": 0}, "unknown", "no request met the fault"),
        ({"receipt": {"fallback": {"reason": "timeout", "message": "m"}}}, "unknown", "ended as timeout, not corrupt"),
        ({"receipt": {"decision": {"reason": "local"}}}, "unknown", "ended as avoided, not corrupt"),
        ({"counted": {}}, "failed", "not in the counters"),
        ({"met": None}, "safe", "a wrong tag"),
    ],
)
def test_whatever_else_is_seen_is_not_safe(changes: dict[str, Any], verdict: str, said: str) -> None:
    result = judge(kind(), replace(SEEN, **changes), 1.0)
    assert result.verdict == verdict
    assert said in result.detail


def test_wrong_tokens_are_the_first_thing_said() -> None:
    result = judge(kind(), replace(SEEN, tokens=("x",), met=0, counted={}), 1.0)
    assert (result.verdict, result.tokens_equal) == ("failed", False)


def test_outcomes() -> None:
    assert outcome_of({"remote": {}, "fallback": None}) == "avoided"
    assert outcome_of({"remote": {"node": "w"}, "fallback": None}) == "remote"
    assert outcome_of(FELL_BACK) == "corrupt"


def report(*verdicts: str) -> DrillReport:
    results = tuple(Result("k", verdict, None, None, None, "") for verdict in verdicts)  # type: ignore[arg-type]
    return DrillReport("http://h", "head", "w", 1.0, results)


def test_a_drill_passes_when_all_that_was_tried_is_safe() -> None:
    assert report("safe", "skipped").passed
    assert not report("safe", "unknown").passed
    assert not report("safe", "failed").passed
    assert not report("skipped").passed
    assert not report().passed
    document = report("safe", "skipped").to_json()
    assert (document["passed"], len(document["results"])) == (True, 2)
