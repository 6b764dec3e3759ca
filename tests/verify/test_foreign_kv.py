"""The probe against a real worker that holds the key, does every bit of work, and ships the KV of another prompt."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kakeya_ops.demo.fleet import WORKER, Child, DemoFleet, write_fleet
from kakeya_ops.demo.interruption import Interruption
from kakeya_ops.secret import read_fleet_keys
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.probe import ProbeOptions, run_probe
from kakeya_ops.verify.workers import find_workers

LYING_WORKER = """
import sys
from dataclasses import replace
from pathlib import Path

from kakeya_ops.engine.engine import Engine
from kakeya_ops.inventory import load_inventory
from kakeya_ops.serving.worker import serve_worker

honest = Engine.prefill
Engine.prefill = lambda engine, job: honest(engine, replace(job, tokens=job.tokens[::-1]))
serve_worker(load_inventory(Path(sys.argv[1])), "worker", print)
"""


class LyingFleet(DemoFleet):
    """An honest head with a worker that is not."""

    def _start(self, name: str) -> None:
        if name != WORKER:
            super()._start(name)
            return
        command = [sys.executable, "-c", LYING_WORKER, str(self.plan.inventory)]
        self.children[name] = Child(name, command, self.plan.directory / "worker.log")


@pytest.mark.slow
def test_kv_of_another_prompt_is_found_out_though_every_signature_is_right(tmp_path: Path, tiny_llama: Path) -> None:
    plan = write_fleet(tmp_path, tiny_llama)
    with LyingFleet(plan, Interruption()) as fleet, HeadClient(plan.url) as head:
        fleet.wait_for("the head's start", head.healthy, 60)
        fleet.wait_for("their meeting", lambda: bool(find_workers(head.network()["nodes"])[1]), 60)
        report = run_probe(ProbeOptions(plan.url, read_fleet_keys(plan.key_file)), lambda _: None)
    wrong = [check for check in report.checks if check.verdict != "ok"]
    assert [check.name for check in wrong] == ["same tokens"], report
    assert "differs from the local one" in wrong[0].detail
