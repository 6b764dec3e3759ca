"""Plans and results as values, and the exit code that follows."""

from __future__ import annotations

import json

import pytest

from deploy.states import bare, planner
from kakeya_ops.deploy.apply import HostResult, Verdict
from kakeya_ops.deploy.cross_check import Check
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.report import describe_plan, describe_results, exit_code
from kakeya_ops.errors import ExitCode, KakeyaError, RefusedError

FAILED_CHECK = Check("head", "allens", "x", "failed", "y")


def result(verdict: Verdict, error: KakeyaError | None = None) -> HostResult:
    return HostResult("allens", "a", "b", 1.0, verdict, error)


@pytest.mark.parametrize(
    ("results", "checks", "code"),
    [
        ([result("done"), result("nothing to do")], [], ExitCode.OK),
        ([result("done")], [FAILED_CHECK], ExitCode.PARTIAL),
        ([result("done"), result("restored", DeployError("a", "b"))], [], ExitCode.PARTIAL),
        ([result("restored", DeployError("a", "b"))], [], ExitCode.FAILED),
        ([result("not begun", RefusedError("no"))], [], ExitCode.NO),
    ],
)
def test_exit_codes(results: list[HostResult], checks: list[Check], code: ExitCode) -> None:
    assert exit_code(results, checks) is code
    assert exit_code(results, checks, interrupted=True) is ExitCode.INTERRUPTED


def test_a_plan_is_a_plain_value() -> None:
    plan = planner().plan({"allens": bare("allens"), "head": DeployError("head", "gone")})
    document = json.loads(json.dumps(describe_plan(plan)))
    assert document["pending"] is True
    assert document["failures"] == {"head": "head: gone"}
    assert document["hosts"][0]["steps"][0] == "create the install root"
    assert any(line.startswith("+") for line in document["hosts"][0]["diff"])


def test_results_are_a_plain_value() -> None:
    document = json.loads(json.dumps(describe_results([result("restored", DeployError("a", "b"))], [FAILED_CHECK])))
    assert document["hosts"][0]["error"] == "a: b"
    assert document["checks"][0]["verdict"] == "failed"
