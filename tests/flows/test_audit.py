"""A worker whose memory changes while it runs: found at one of its next imports, held, and harmless from then on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.heads import wait_until
from flows.inside import worker_inside
from flows.loopback import LoopbackFleet, Plan, Wanted, running
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.engine.engine import Engine

TOKENS = 400
WRONG = 4.0


@pytest.fixture
def fleet(tmp_path: Path, tiny_llama: Path) -> Any:
    nodes = {"worker": Plan("worker", early=False), "head": Plan("head")}
    with running(tmp_path, tiny_llama, Wanted(nodes, prefill={"audit": 1.0})) as fleet:
        yield fleet


def put(engine: Engine, value: float) -> float:
    """Change one weight of the first layer's keys to `value`; what it was. The identity was computed from the files."""

    def change() -> float:
        layer = engine._model.model.layers[0].self_attn.k_proj
        weight = layer.weight
        before = float(weight[0, 0])
        weight[0, 0] = value
        layer.weight = weight
        return before

    return engine.call(change)


def same_as_local(fleet: LoopbackFleet, prompt: str, *modes: str) -> Any:
    answer, receipt = fleet.head.complete(prompt, *modes)
    local, _ = fleet.head.complete(prompt, "local")
    return receipt, (answer.tokens, answer.logprobs) == (local.tokens, local.logprobs)


def audits(fleet: LoopbackFleet) -> Any:
    counters = fleet.head.counters()
    return counters["audits"], counters["audit_failures"]


def quarantine(fleet: LoopbackFleet, *words: str) -> Any:
    """What `kakeya quarantine` says."""
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--json", "--inventory", str(fleet.write_inventory("head"))]
    done = subprocess.run([*command, "quarantine", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_flipped_weight_is_found_at_the_next_import_and_harms_nobody_until_the_worker_is_released(
    fleet: LoopbackFleet,
) -> None:
    with worker_inside(fleet, "worker") as worker:
        assert worker.engine
        fleet.head.wait_for_peer("worker")
        assert same_as_local(fleet, fresh_prompt(TOKENS), "remote")[1]
        wait_until(lambda: audits(fleet) == (1, 0), "an audit that is passed")
        right = put(worker.engine, WRONG)
        spoilt = fresh_prompt(TOKENS)
        receipt, equal = same_as_local(fleet, spoilt, "remote")
        assert receipt["remote"]["computed_tokens"] == whole_blocks(TOKENS)
        assert not equal
        wait_until(lambda: audits(fleet) == (2, 1), "the finding")
        for prompt in (spoilt, fresh_prompt(TOKENS)):
            receipt, equal = same_as_local(fleet, prompt)
            assert (receipt["remote"], receipt["local_pool_tokens"], equal) == (None, 0, True)
        [held] = quarantine(fleet, "list")["held"]
        evidence = held["evidence"]
        assert (held["node"], evidence["epoch"], evidence["block"]) == ("worker", worker.epoch, 0)
        assert evidence["max_deviation"] > evidence["tolerance"] == 0.0
        assert (fleet.directory / "fleet.key.head.quarantine.json").stat().st_mode & 0o777 == 0o600
        put(worker.engine, right)
        fleet.restart("head")
        assert fleet.head.node("worker")["quarantine"] == held
        assert not fleet.head.usable("worker")
        assert quarantine(fleet, "release", "worker", "--reason", "a new module")["release_reason"] == "a new module"
        fleet.head.wait_for_peer("worker")
        receipt, equal = same_as_local(fleet, spoilt, "remote")
        assert (receipt["remote"]["pool_tokens"], equal) == (0, True)
        wait_until(lambda: audits(fleet) == (1, 0), "an audit that is passed again")
