"""A minute of mixed load with faults: no wrong answer, no failed request, nothing that grows, and rest afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soaking import Soak, SoakPlan
from bench.steadiness import Limits
from flows.loopback import Wanted, running

PLAN = SoakPlan(seconds=38, warm_up_seconds=8, clients=2, fault_seconds=7, rest_seconds=4, think_seconds=0.3)
SHORT = Limits(memory_share=0.25, memory_bytes=48 * 2**20, cpu_share_at_rest=0.3)
"""A process that was just started still settles; the hour of ``tests/bench/soak.py`` is the strict one."""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_grows_fails_or_is_wrong_and_idle_nodes_rest(tmp_path: Path, tiny_llama: Path) -> None:
    with running(tmp_path, tiny_llama, Wanted(cache={"pool_gb": 8 / 1024})) as fleet:
        fleet.head.wait_for_peer("worker")
        report = Soak(fleet, PLAN).run()
    assert report.complaints(SHORT) == []
    assert report.answered > 10
    assert report.abandoned > 0
    assert sum(report.faults.values()) >= 4
    assert report.series["head", fleet.children["head"].pid]
    assert set(report.rests) == {"head", "worker"}
