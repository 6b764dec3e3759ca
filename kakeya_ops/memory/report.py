"""Assessments as plain values, for JSON: every figure in bytes, with where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kakeya_ops.memory.advice import Change
from kakeya_ops.memory.assessment import Assessment
from kakeya_ops.memory.observed import Comparison


def describe_assessment(assessment: Assessment, comparisons: Sequence[Comparison] = ()) -> dict[str, Any]:
    """One host in one role."""
    verdict, question = assessment.verdict, assessment.question
    need = verdict.need
    return {
        "host": assessment.host,
        "role": question.load.role,
        "answer": verdict.answer,
        "reason": verdict.reason,
        "first_failure": verdict.first_failure.name if verdict.first_failure else None,
        "missing": list(verdict.missing),
        "pinned": verdict.pinned,
        "workload": asdict(question.load),
        "thresholds": asdict(question.thresholds),
        "need": None if need is None else asdict(need) | {"gpu_bytes": need.gpu_bytes, "total_bytes": need.total_bytes},
        "inequalities": [asdict(one) | {"left_bytes": one.left_bytes} for one in verdict.inequalities],
        "host_memory": asdict(question.host),
        "changes": [_describe_change(change) for change in assessment.changes],
        "observed": [
            asdict(one) | {"off_percent": round(one.off_percent, 1), "warning": one.warning} for one in comparisons
        ],
    }


def _describe_change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "sentence": change.sentence,
        "answer": change.answer,
        "command": change.command,
        "risk": change.risk,
        "workload": asdict(change.question.load),
    }


__all__ = ["describe_assessment"]
