"""A worker whose memory changes while it runs: found at one of its next imports, held, and harmless from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.heads import wait_until
from flows.inside import worker_inside
from flows.loopback import LoopbackFleet, Plan, Wanted, running
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.engine.engine import Engine

TOKENS = 400


@pytest.fixture
def fleet(tmp_path: Path, tiny_llama: Path) -> Any:
    nodes = {"worker": Plan("worker", early=False), "head": Plan("head")}
    with running(tmp_path, tiny_llama, Wanted(nodes, prefill={"audit": 1.0})) as fleet:
        yield fleet


def flip(engine: Engine) -> None:
    """One weight of the first layer's keys, after the identity was computed from the files."""

    def change() -> None:
        weight = engine._model.model.layers[0].self_attn.k_proj.weight
        weight[0, 0] = weight[0, 0] + 4.0
        engine._model.model.layers[0].self_attn.k_proj.weight = weight

    engine.call(change)


def same_as_local(fleet: LoopbackFleet, *modes: str) -> Any:
    prompt = fresh_prompt(TOKENS)
    answer, receipt = fleet.head.complete(prompt, *modes)
    local, _ = fleet.head.complete(prompt, "local")
    return receipt, (answer.tokens, answer.logprobs) == (local.tokens, local.logprobs)


def audits(fleet: LoopbackFleet) -> Any:
    counters = fleet.head.counters()
    return counters["audits"], counters["audit_failures"]


def test_one_flipped_weight_is_found_at_the_next_import_and_harms_nobody_after(fleet: LoopbackFleet) -> None:
    with worker_inside(fleet, "worker") as worker:
        fleet.head.wait_for_peer("worker")
        assert same_as_local(fleet, "remote")[1]
        wait_until(lambda: audits(fleet) == (1, 0), "an audit that is passed")
        assert worker.engine
        flip(worker.engine)
        receipt, equal = same_as_local(fleet, "remote")
        assert receipt["remote"]["computed_tokens"] == whole_blocks(TOKENS)
        assert not equal
        wait_until(lambda: audits(fleet) == (2, 1), "the finding")
        held = fleet.head.node("worker")["quarantine"]
        assert held["evidence"]["block"] == 0
        assert held["evidence"]["max_deviation"] > 0
        for _ in range(2):
            receipt, equal = same_as_local(fleet)
            assert (receipt["remote"], receipt["local_pool_tokens"], equal) == (None, 0, True)
    file = fleet.directory / "fleet.key.head.quarantine.json"
    assert file.stat().st_mode & 0o777 == 0o600
    fleet.end("head")
    fleet.start("head")
    fleet.wait_ready("head")
    assert fleet.head.node("worker")["quarantine"]["evidence"] == held["evidence"]
    assert not fleet.head.usable("worker")
