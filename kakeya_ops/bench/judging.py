"""Which of the own targets a run met: pure arithmetic on what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_ops.bench.report import LocalLine, WorkerLine, WorkerResult
from kakeya_ops.bench.targets import KINDS, Target

_FIXED_SECONDS = 0.020
_SHARE = 1.3


@dataclass(frozen=True)
class Besides:
    """What else the targets need to know; None where it is not known.

    `prefill_seconds` is the worker's pure prefill time at its longest length, `copy_seconds` what copying a hit's bytes
    takes on the head, `step_seconds` one decode step there.
    """

    prefill_seconds: float | None
    copy_seconds: float | None
    step_seconds: float | None


def judge_worker(worker: WorkerResult, local: Sequence[LocalLine], besides: Besides) -> tuple[Target, ...]:
    """The targets about `worker`, at the longest length that was measured of it."""
    if not worker.lines:
        return ()
    line = worker.lines[-1]
    own = next((other for other in local if other.length == line.length), None)
    hit = line.hit_first_token.median if line.hit_first_token else None
    ratio = worker.prediction_ratio
    values = {
        "hit": _divide(hit, own.first_token.median if own and own.first_token else None),
        "hit_floor": _divide(hit, _floor_seconds(line, worker.link.raw, besides)),
        "transfer": _divide(worker.link.measured.median if worker.link.measured else None, worker.link.raw),
        "overlap": _divide(line.first_token.median if line.first_token else None, besides.prefill_seconds),
        "prediction": None if ratio is None else abs(ratio - 1),
    }
    return tuple(Target(KINDS[name], worker.node, value) for name, value in values.items())


def _floor_seconds(line: WorkerLine, raw: float | None, besides: Besides) -> float | None:
    copying, step = besides.copy_seconds, besides.step_seconds
    if line.hit_bytes is None or not raw or copying is None or step is None:
        return None
    return _SHARE * (line.hit_bytes / raw + copying) + step + _FIXED_SECONDS


def _divide(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


__all__ = ["Besides", "judge_worker"]
