"""Clients that give up and send their request again: one prefill, on whichever node it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.heads import wait_until
from flows.loopback import LoopbackFleet, Wanted, grown, running
from flows.prompts import fresh_prompt, whole_blocks

LONG_TOKENS = 6000
BLOCK_BYTES = 32768
RESENDS = 5


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    """A pair whose prefills outlive their clients for a while."""
    with running(tmp_path_factory.mktemp("patient"), tiny_llama, Wanted(prefill={"grace_seconds": 30})) as fleet:
        fleet.head.wait_for_peer("worker")
        yield fleet


def test_five_resends_cost_one_prefill(patient: LoopbackFleet) -> None:
    resend_to_a_worker(patient)
    patient.end("worker")
    wait_until(lambda: not patient.head.usable("worker"), "the worker's absence")
    resend_to_a_head_alone(patient)


def resend_to_a_worker(patient: LoopbackFleet) -> None:
    prompt = fresh_prompt(LONG_TOKENS)
    proxy = patient.proxies["worker"]
    for _ in range(RESENDS):
        passed, lookups = proxy.passed("down"), patient.counter("worker", "lookups")
        with patient.head.started(prompt, "remote"):
            wait_until(grown(lambda: patient.counter("worker", "lookups"), lookups), "the lookup")
            assert proxy.wait_until(lambda proxy, passed=passed: proxy.passed("down") > passed + BLOCK_BYTES, 30)
    answer, receipt = patient.head.complete(prompt)
    assert answer.tokens
    after, head = patient.card("worker").counters, patient.head.counters()
    computed = after["tokens_computed"] + head["tokens_abandoned"] + receipt["local_computed_tokens"]
    assert whole_blocks(LONG_TOKENS) <= computed <= 1.1 * LONG_TOKENS
    assert (after["jobs_started"], after["jobs_cancelled"]) == (1, 0)
    assert after["jobs_joined"] >= 1


def resend_to_a_head_alone(patient: LoopbackFleet) -> None:
    prompt = fresh_prompt(LONG_TOKENS)
    before = patient.head.counters()
    for _ in range(RESENDS):
        with patient.head.started(prompt):
            wait_until(lambda: len(patient.head.get("/v1/network/prefill")["live"]) == 1, "the request")
    answer, _ = patient.head.complete(prompt)
    after = patient.head.counters()
    assert answer.tokens
    computed = sum(after[name] - before[name] for name in ("tokens_computed_local", "tokens_abandoned"))
    assert LONG_TOKENS - 64 <= computed <= 1.1 * LONG_TOKENS
    assert after["requests_joined"] > before["requests_joined"]
