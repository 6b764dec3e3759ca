from __future__ import annotations

from dataclasses import replace

import pytest

from bench.taken import sample_of
from kakeya_ops.bench.conclusion import conclude_worker
from kakeya_ops.bench.judging import Besides, judge_worker
from kakeya_ops.bench.report import WorkerResult, summarize_local

SAMPLES = [sample_of("local", 1000, 10.0), sample_of("remote", 1000, 1.05), sample_of("remote_hit", 1000, 0.15)]
LOCAL = summarize_local(SAMPLES)
BESIDES = Besides(prefill_seconds=1.0, copy_seconds=0.01, step_seconds=0.05)


def worker(raw: float | None = 2e7) -> WorkerResult:
    found = conclude_worker("worker", SAMPLES, LOCAL, None)
    return replace(found, link=replace(found.link, raw=raw), prediction_ratio=0.9)


def test_each_target_has_its_ratio() -> None:
    values = {target.kind.name: target.value for target in judge_worker(worker(), LOCAL, BESIDES)}
    assert values == {
        "hit": pytest.approx(0.015),
        # 1 MB at 20 MB/s and the copy, a third more; one step; 20 ms.
        "hit_floor": pytest.approx(0.15 / (1.3 * (0.05 + 0.01) + 0.05 + 0.02)),
        "transfer": pytest.approx(0.5),
        "overlap": pytest.approx(1.05),
        "prediction": pytest.approx(0.1),
    }


def test_what_is_not_known_is_no_verdict() -> None:
    known = {target.kind.name: target.met for target in judge_worker(worker(raw=None), (), Besides(None, None, None))}
    assert known == {"hit": None, "hit_floor": None, "transfer": None, "overlap": None, "prediction": True}


def test_a_worker_of_which_nothing_was_measured_has_no_targets() -> None:
    assert judge_worker(conclude_worker("absent", SAMPLES, LOCAL, None), LOCAL, BESIDES) == ()
