from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kakeya_ops.drill.catalogue import Kind, kind_named
from kakeya_ops.drill.report import DrillReport, Result, Seen, judge, outcome_of, recount

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
    return DrillReport("http://h", "head", ("w",), 1.0, results)


def test_a_drill_passes_when_all_that_was_tried_is_safe() -> None:
    assert report("safe", "skipped").passed
    assert not report("safe", "unknown").passed
    assert not report("safe", "failed").passed
    assert not report("skipped").passed
    assert not report().passed
    document = report("safe", "skipped").to_json()
    assert (document["passed"], len(document["results"])) == (True, 2)


ALONE = replace(SEEN, receipt={"decision": {"reason": "1 s predicted, against 2 s from w"}}, met=0)


def test_a_head_that_may_choose_and_does_not_ask_cannot_be_drilled_so() -> None:
    result = judge(kind("late-prefill"), ALONE, 1.0)
    assert (result.verdict, "1 s predicted, against 2 s" in result.detail) == ("skipped", True)
    impatient = replace(ALONE, receipt={"fallback": {"reason": "timeout", "message": "did not say in time"}})
    assert judge(kind("late-prefill"), impatient, 1.0).verdict == "skipped"
    assert judge(kind("late-prefill"), replace(ALONE, met=1), 1.0).verdict == "unknown"
    assert judge(kind("slow-lookup"), ALONE, 1.0).verdict == "unknown"
    assert judge(kind("late-prefill"), replace(ALONE, tokens=("x",)), 1.0).verdict == "failed"


def fell_back(reason: str, verdict: str = "safe") -> Result:
    return Result(f"kind of {reason}", verdict, reason, True, 0.1, "said")  # type: ignore[arg-type]


def test_all_fallbacks_together_must_have_been_counted() -> None:
    results = [fell_back("corrupt"), fell_back("busy"), fell_back("corrupt"), fell_back("remote"), fell_back("avoided")]
    assert recount(results, {"corrupt": 2.0, "busy": 3.0}) == results
    verdicts = [result.verdict for result in recount(results, {"corrupt": 1.0, "busy": 1.0})]
    assert verdicts == ["failed", "safe", "failed", "safe", "safe"]
    assert "counted" in recount(results, {})[1].detail


def test_what_has_failed_for_another_reason_keeps_it() -> None:
    failed = fell_back("corrupt", "failed")
    assert recount([failed], {}) == [failed]
