"""The acceptance probe against real processes: what makes it pass, and what cannot."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.heads import wait_until
from flows.inside import ForeignKv, worker_inside
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.secret import Secret
from kakeya_ops.serving.job import Subscription
from kakeya_ops.serving.job_stream import JobStream
from kakeya_ops.verify.probe import ProbeOptions, run_probe
from kakeya_ops.wire.bodies import WorkerReceipt

Verdict = dict[str, Any]
PROMPT_TOKENS = 600


def kakeya_verify(inventory: Path, *options: str) -> tuple[int, Verdict | None, str]:
    """Exit code, JSON document and error output of the command."""
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(inventory), "--json"]
    done = subprocess.run([*command, "verify", "remote-prefill", *options], capture_output=True, text=True, timeout=100)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else None, done.stderr


def wrong(document: Verdict | None) -> dict[str, str]:
    """The checks that did not hold, with what they say."""
    assert document is not None
    return {check["name"]: check["detail"] for check in document["checks"] if check["verdict"] != "ok"}


@contextlib.contextmanager
def traffic(fleet: LoopbackFleet, clients: int = 3) -> Iterator[Callable[[], int]]:
    """Other clients, whose cold prompts go to the worker, for as long as the block runs; how many were answered."""
    over, counts = threading.Event(), [0] * clients

    def ask(client: int) -> None:
        while not over.is_set():
            fleet.head.complete(fresh_prompt(PROMPT_TOKENS), "remote", max_tokens=4)
            counts[client] += 1

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(counts)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


def test_it_passes_while_others_are_served(pair: LoopbackFleet) -> None:
    with traffic(pair) as answered:
        before = answered()
        code, document, _ = kakeya_verify(pair.write_inventory("head"))
        assert answered() > before
    assert (code, wrong(document)) == (0, {})
    assert document is not None
    assert (document["passed"], document["worker"]) == (True, "worker")
    assert len(document["checks"]) > 10


def test_without_its_worker_it_fails_whatever_others_do(pair: LoopbackFleet) -> None:
    pair.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
    pair.end("worker")
    try:
        with traffic(pair):
            code, document, _ = kakeya_verify(pair.write_inventory("head"))
        assert code == 1
        assert document is not None
        assert not document["passed"]
        assert "worker" in " ".join(wrong(document).values())
    finally:
        pair.restart("worker")


def test_without_a_head_it_cannot_be_carried_out(pair: LoopbackFleet) -> None:
    nobody = f"http://127.0.0.1:{pair.proxies['worker'].port + 1}"
    code, document, said = kakeya_verify(pair.write_inventory("head"), "--url", nobody)
    assert (code, document) == (3, None)
    assert "cannot be reached" in said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def liars(shared_pair: LoopbackFleet) -> Iterator[LoopbackFleet]:
    """The pair without its honest worker, whose port and name are free for others."""
    shared_pair.end("worker")
    yield shared_pair
    shared_pair.restart("worker")


def meet(fleet: LoopbackFleet, instance: str) -> None:
    wait_until(lambda: fleet.head.node("worker").get("instance") == instance, "meeting the liar")
    fleet.head.wait_for_peer("worker")


def test_the_kv_of_another_prompt_under_the_right_names(liars: LoopbackFleet) -> None:
    with worker_inside(liars, "worker", ForeignKv) as node:
        meet(liars, node.instance)
        report = run_probe(ProbeOptions(liars.head.url, liars.key), lambda line: None)
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
        report = run_probe(ProbeOptions(liars.head.url, liars.key), lambda line: None)
        failed = {check.name for check in report.checks if check.verdict == "failed"}
        assert "remote compute, no fallback" in failed
    local, _ = liars.head.complete(prompt, "local")
    assert answer.logprobs == local.logprobs
