"""Plans, results and checks as plain values, for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.cross_check import Check
from kakeya_ops.deploy.diff import plan_diff
from kakeya_ops.deploy.plan import HostPlan, Plan
from kakeya_ops.errors import ExitCode, KakeyaError


def describe_plan(plan: Plan) -> dict[str, Any]:
    """What would be done: hosts with reasons, diff and steps; hosts that cannot be planned with their error."""
    return {
        "pending": bool(plan.pending),
        "hosts": [_describe_host(host) for host in plan.hosts],
        "failures": {name: error.message for name, error in plan.failures.items()},
    }


def describe_results(results: Iterable[HostResult], checks: Iterable[Check]) -> dict[str, Any]:
    """What was done and what was found afterwards."""
    return {"hosts": [_describe_result(result) for result in results], "checks": [asdict(check) for check in checks]}


def exit_code(results: Iterable[HostResult], checks: Iterable[Check], *, interrupted: bool = False) -> ExitCode:
    """The exit code: fine, some hosts only, or none; a failed check counts as a host that did not make it."""
    good = [result.good for result in results]
    failed_check = any(check.verdict == "failed" for check in checks)
    if interrupted:
        return ExitCode.INTERRUPTED
    if all(good):
        return ExitCode.PARTIAL if failed_check else ExitCode.OK
    if any(good):
        return ExitCode.PARTIAL
    errors = [result.error for result in results if isinstance(result.error, KakeyaError)]
    return max((error.exit_code for error in errors if error.exit_code is not ExitCode.BUG), default=ExitCode.FAILED)


def _describe_host(plan: HostPlan) -> dict[str, Any]:
    return {
        "host": plan.host.name,
        "role": plan.host.role,
        "before": plan.state.generation,
        "after": plan.after,
        "reasons": list(plan.reasons),
        "steps": [step.title for step in plan.steps],
        "diff": plan_diff(plan),
        "gate": None if plan.gate is None else asdict(plan.gate),
    }


def _describe_result(result: HostResult) -> dict[str, Any]:
    return {
        "host": result.host,
        "before": result.before,
        "after": result.after,
        "seconds": round(result.seconds, 3),
        "verdict": result.verdict,
        "failed_step": result.failed_step,
        "error": result.error.message if result.error else None,
        "hint": result.error.hint if result.error else None,
        "not_restored": [error.message for error in result.failures],
        "log": result.log,
    }


__all__ = ["describe_plan", "describe_results", "exit_code"]
