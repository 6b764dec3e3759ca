"""Two heads with one worker, each with a pool, counters and receipts of its own; and a worker of another release."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flows.heads import Head, Receipt, wait_until
from flows.inside import worker_inside
from flows.loopback import LoopbackFleet, Plan, Wanted, running
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.verify.head_client import Completion
from kakeya_ops.verify.probe import ProbeOptions, run_probe

PROMPT_TOKENS = 1200
PLANS = {
    "head": Plan("head"),
    "second": Plan("head"),
    "worker": Plan("worker"),
    "future": Plan("worker", early=False),
}
ATTEMPTS = 10


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    with running(tmp_path_factory.mktemp("two-heads"), tiny_llama, Wanted(PLANS)) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared: LoopbackFleet) -> LoopbackFleet:
    """Both heads know the worker."""
    if shared.children["second"].ended_within(0):
        shared.start("second")
        shared.wait_ready("second")
    for head in shared.heads.values():
        head.wait_for_peer("worker")
    return shared


def ask_both(fleet: LoopbackFleet, prompt: str) -> list[tuple[Completion, Receipt]]:
    """The same prompt to both heads at the same moment."""
    together = threading.Barrier(2, timeout=60)

    def ask(head: Head) -> tuple[Completion, Receipt]:
        together.wait()
        return head.complete(prompt, "remote")

    with ThreadPoolExecutor(2) as clients:
        return list(clients.map(ask, (fleet.heads["head"], fleet.heads["second"])))


def test_both_heads_share_one_job_and_nothing_else(fleet: LoopbackFleet) -> None:
    joined = fleet.counter("worker", "jobs_joined")
    for _ in range(ATTEMPTS):
        prompt = fresh_prompt(PROMPT_TOKENS)
        computed = fleet.counter("worker", "tokens_computed")
        before = {name: head.counters() for name, head in fleet.heads.items()}
        (one, first), (other, second) = ask_both(fleet, prompt)
        assert (one.tokens, one.logprobs) == (other.tokens, other.logprobs)
        assert fleet.counter("worker", "tokens_computed") - computed == whole_blocks(PROMPT_TOKENS)
        check_apart(fleet, before, {"head": first, "second": second})
        if fleet.counter("worker", "jobs_joined") > joined:
            return
    raise AssertionError("no two requests met at the worker")


def check_apart(fleet: LoopbackFleet, before: dict[str, dict[str, Any]], receipts: dict[str, Receipt]) -> None:
    """Each head has counted its own request, and knows its own receipt alone."""
    for name, receipt in receipts.items():
        head = fleet.heads[name]
        assert (receipt["fallback"], receipt["remote"]["node"]) == (None, "worker")
        assert head.counters()["requests"] == before[name]["requests"] + 1
        assert head.client.receipt(receipt["request_id"])["request_id"] == receipt["request_id"]
        [foreign] = (other["request_id"] for other in receipts.values() if other is not receipt)
        answer = head.client._http.get(f"/v1/network/receipts/{foreign}")
        assert answer.status_code == 404


def test_a_prefix_of_one_head_is_in_no_pool_of_the_other(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(400)
    fleet.heads["head"].complete(prompt, "local")
    _, receipt = fleet.heads["second"].complete(prompt, "remote")
    assert receipt["local_pool_tokens"] == 0
    assert receipt["remote"]["computed_tokens"] == whole_blocks(400)


def test_a_head_that_dies_disturbs_no_job_that_another_shares(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    failed = fleet.counter("worker", "jobs_failed")
    with fleet.heads["second"].started(prompt, "remote"):
        started = fleet.counter("worker", "jobs_started")
        with ThreadPoolExecutor(1) as client:
            answer = client.submit(fleet.heads["head"].complete, prompt, "remote")
            wait_until(lambda: fleet.counter("worker", "jobs_started") >= started, "the job")
            fleet.end("second")
            completion, receipt = answer.result(60)
    expected, _ = fleet.heads["head"].complete(prompt, "local")
    assert (completion.tokens, completion.logprobs) == (expected.tokens, expected.logprobs)
    assert (receipt["fallback"], receipt["remote"]["tokens"]) == (None, whole_blocks(PROMPT_TOKENS))
    assert fleet.counter("worker", "jobs_failed") == failed
    assert fleet.heads["head"].usable("worker")


def test_a_worker_of_another_wire_version_is_refused_by_that_name(
    fleet: LoopbackFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("kakeya_ops.wire.version.WIRE_VERSION", 2)
        with worker_inside(fleet, "future") as node:
            said = "speaks wire version 2, and release"
            wait_until(lambda: said in str(fleet.head.node("future").get("link")), "the refusal")
            assert not fleet.head.usable("future")
            report = run_probe(ProbeOptions(fleet.head.url, (fleet.key,), worker="future"), lambda line: None)
            assert not report.passed
            assert said in report.checks[0].detail
            wait_until(lambda: node.counters.value("requests_refused", reason="release_mismatch") > 0, "its refusals")
            assert node.cards.card("head") is None
    prompt = fresh_prompt(400)
    answer, _ = fleet.head.complete(prompt)
    expected, _ = fleet.head.complete(prompt, "local")
    assert (answer.tokens, answer.logprobs) == (expected.tokens, expected.logprobs)
