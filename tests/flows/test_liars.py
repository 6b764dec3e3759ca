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


def fall_back(fleet: LoopbackFleet, reason: str) -> None:
    """A request that the worker fails for `reason`, and then one that it does not: so it is forgiven."""
    before = fleet.head.counters()["by_reason"].get(reason, 0)
    prompt = fresh_prompt(PROMPT_TOKENS)
    answer, receipt = fleet.head.complete(prompt, "remote")
    local, _ = fleet.head.complete(prompt, "local")
    assert answer.logprobs == local.logprobs
    assert receipt["remote"] is None
    assert receipt["fallback"]["reason"] == reason
    assert fleet.head.counters()["by_reason"][reason] == before + 1


def be_forgiven(fleet: LoopbackFleet) -> None:
    fleet.head.wait_for_peer("worker")
    _, receipt = fleet.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
    assert receipt["remote"]["computed_tokens"] == whole_blocks(PROMPT_TOKENS)


def test_what_a_worker_with_the_key_may_send_instead_of_the_truth(
    liars: LoopbackFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with worker_inside(liars, "worker") as node:
        meet(liars, node.instance)
        for lie in (forged, replayed, boastful):
            with monkeypatch.context() as lying:
                lying.setattr(JobStream, "_receipt", lie(JobStream._receipt))
                if lie is replayed:
                    be_forgiven(liars)
                fall_back(liars, "corrupt")
            be_forgiven(liars)
        whole_bytes = node.pool.budget_bytes
        node.pool.resize(BLOCK_BYTES // 2)
        fall_back(liars, "pool_full")
        node.pool.resize(whole_bytes)
        be_forgiven(liars)


def test_a_probe_is_not_content_with_a_forged_receipt(liars: LoopbackFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobStream, "_receipt", forged(JobStream._receipt))
    with worker_inside(liars, "worker") as node:
        meet(liars, node.instance)
        report = run_probe(ProbeOptions(liars.head.url, (liars.key,)), lambda line: None)
    failed = {check.name for check in report.checks if check.verdict == "failed"}
    assert "remote compute, no fallback" in failed
