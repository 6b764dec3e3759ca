"""Without its honest worker a fleet has nothing to show, whatever others say or do in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flows.heads import wait_until
from flows.inside import ForeignKv, worker_inside
from flows.loopback import LoopbackFleet
from flows.probing import PROMPT_TOKENS, kakeya_verify, traffic, wrong
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.secret import Secret
from kakeya_ops.serving.job import Subscription
from kakeya_ops.serving.job_stream import JobStream
from kakeya_ops.verify.probe import ProbeOptions, run_probe
from kakeya_ops.wire.bodies import WorkerReceipt

BLOCK_BYTES = 32768


@pytest.fixture(scope="module")
def liars(shared_pair: LoopbackFleet) -> Iterator[LoopbackFleet]:
    """The pair without its honest worker, whose port and name are free for others."""
    shared_pair.head.wait_for_peer("worker")
    shared_pair.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
    shared_pair.end("worker")
    yield shared_pair
    shared_pair.restart("worker")


def meet(fleet: LoopbackFleet, instance: str) -> None:
    wait_until(lambda: fleet.head.node("worker").get("instance") == instance, "meeting the liar")
    fleet.head.wait_for_peer("worker")


def test_without_its_worker_the_probe_fails_whatever_others_do(liars: LoopbackFleet) -> None:
    with traffic(liars):
        code, document, _ = kakeya_verify(liars.write_inventory("head"))
    assert code == 1
    assert document is not None
    assert not document["passed"]
    assert "worker" in " ".join(wrong(document).values())


def test_a_worker_whose_pool_has_no_room(liars: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    expected, _ = liars.head.complete(prompt, "local")
    with worker_inside(liars, "worker", pool_bytes=BLOCK_BYTES // 2) as node:
        meet(liars, node.instance)
        before = liars.head.counters()["by_reason"].get("pool_full", 0)
        answer, receipt = liars.head.complete(prompt, "remote", "skip-local-pool")
    assert answer.logprobs == expected.logprobs
    assert receipt["fallback"]["reason"] == "pool_full"
    assert liars.head.counters()["by_reason"]["pool_full"] == before + 1


def test_the_kv_of_another_prompt_under_the_right_names(liars: LoopbackFleet) -> None:
    with worker_inside(liars, "worker", ForeignKv) as node:
        meet(liars, node.instance)
        report = run_probe(ProbeOptions(liars.head.url, (liars.key,)), lambda line: None)
    assert [check.name for check in report.checks if check.verdict != "ok"] == ["same tokens"]


Receipts = Callable[[JobStream, Subscription], WorkerReceipt]


def forged(honest: Receipts) -> Receipts:
    """Signed with a key that is not the fleet's."""
    return lambda stream, subscription: honest(stream, subscription).sign(Secret(b"some other fleet's key, 32 bytes"))


def replayed(honest: Receipts) -> Receipts:
    """The first receipt for everybody."""
    first: list[WorkerReceipt] = []

    def receipt(stream: JobStream, subscription: Subscription) -> WorkerReceipt:
        first.append(honest(stream, subscription))
        return first[0]

    return receipt


def boastful(honest: Receipts) -> Receipts:
    """About more than was done, and signed before that was written in."""
    return lambda stream, subscription: honest(stream, subscription).model_copy(update={"computed_tokens": 10_000})


@pytest.mark.parametrize("lie", [forged, replayed, boastful])
def test_a_receipt_that_is_not_the_truth(
    liars: LoopbackFleet, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Receipts], Receipts]
) -> None:
    monkeypatch.setattr(JobStream, "_receipt", lie(JobStream._receipt))
    with worker_inside(liars, "worker") as node:
        meet(liars, node.instance)
        if lie is replayed:
            _, receipt = liars.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
            assert receipt["remote"]["worker_receipt"]["computed_tokens"] == whole_blocks(PROMPT_TOKENS)
        before = liars.head.counters()["by_reason"].get("corrupt", 0)
        prompt = fresh_prompt(PROMPT_TOKENS)
        answer, receipt = liars.head.complete(prompt, "remote")
        assert receipt["fallback"]["reason"] == "corrupt"
        assert receipt["remote"] is None
        assert liars.head.counters()["by_reason"]["corrupt"] == before + 1
        liars.head.wait_for_peer("worker")
        report = run_probe(ProbeOptions(liars.head.url, (liars.key,)), lambda line: None)
        failed = {check.name for check in report.checks if check.verdict == "failed"}
        assert "remote compute, no fallback" in failed
    local, _ = liars.head.complete(prompt, "local")
    assert answer.logprobs == local.logprobs
