"""Nodes that are killed, stopped and started anew in the middle of things."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from faults.proxy import Fault, FaultProxy
from flows.heads import Receipt, try_until, wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.verify.head_client import Completion

PROMPT_TOKENS = 1000
LONG_TOKENS = 3200
BLOCK_BYTES = 32768

Asked = Future[tuple[Completion, Receipt]]


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Where a request waits while the test does something to the fleet."""
    with ThreadPoolExecutor(4) as executor:
        yield executor


def begin_stream(fleet: LoopbackFleet, aside: ThreadPoolExecutor, prompt: str, fault: Fault) -> Asked:
    """A request whose stream from the worker, subject to `fault`, has brought at least two blocks."""
    fleet.proxies["worker"].set(down=fault)
    fleet.proxies["worker"].sever()
    fleet.head.wait_for_peer("worker")
    before = fleet.proxies["worker"].passed("down")
    asked = aside.submit(fleet.head.complete, prompt, "remote", "skip-local-pool")
    assert fleet.proxies["worker"].wait_until(lambda proxy: proxy.passed("down") > before + 3 * BLOCK_BYTES, 30)
    return asked


def wait_until_silent(proxy: FaultProxy, seconds: float = 1.0) -> None:
    """Wait until nothing has come from its target for `seconds`."""
    passed = -1
    while passed != (passed := proxy.passed("down")):
        proxy.wait_until(partial(_has_passed, passed), seconds)


def _has_passed(count: int, proxy: FaultProxy) -> bool:
    return proxy.passed("down") > count


@pytest.mark.slow
def test_a_worker_that_is_killed_in_mid_stream_and_starts_anew(pair: LoopbackFleet, aside: ThreadPoolExecutor) -> None:
    held, prompt = fresh_prompt(PROMPT_TOKENS), fresh_prompt(LONG_TOKENS)
    cold, first = pair.head.complete(held, "remote")
    expected, _ = pair.head.complete(prompt, "local")
    before = pair.head.counters()["by_reason"].get("unreachable", 0)

    def kill() -> tuple[Completion, Receipt] | None:
        # It must be at work still: what it has sent arrives, even when it is dead.
        asked = begin_stream(pair, aside, prompt, Fault())
        pair.end("worker")
        answer, receipt = asked.result()
        pair.proxies["worker"].heal()
        pair.restart("worker")
        return (answer, receipt) if receipt["fallback"] else None

    answer, receipt = try_until(kill, "the middle of a stream", 4)
    assert answer.logprobs == expected.logprobs
    assert receipt["fallback"]["reason"] == "unreachable"
    assert receipt["fallback"]["kept_blocks"] > 0
    assert pair.head.counters()["by_reason"]["unreachable"] == before + 1
    again, receipt = pair.head.complete(held, "remote", "skip-local-pool")
    assert again.logprobs == cold.logprobs
    # What the process before held is a miss like any other.
    assert receipt["fallback"] is None
    assert receipt["decision"]["kind"] == "remote_compute"
    assert receipt["remote"]["computed_tokens"] == whole_blocks(PROMPT_TOKENS)
    assert receipt["remote"]["epoch"] == pair.card("worker").epoch > first["remote"]["epoch"]


def test_a_worker_that_pauses_and_goes_on_is_waited_for(pair: LoopbackFleet, aside: ThreadPoolExecutor) -> None:
    worker, proxy = pair.children["worker"], pair.proxies["worker"]

    def pause() -> tuple[str, Asked] | None:
        prompt = fresh_prompt(LONG_TOKENS)
        asked = begin_stream(pair, aside, prompt, Fault())
        worker.signal_group(signal.SIGSTOP)
        try:
            wait_until_silent(proxy)
            return None if asked.done() else (prompt, asked)
        finally:
            worker.signal_group(signal.SIGCONT)

    prompt, asked = try_until(pause, "the middle of a stream")
    answer, receipt = asked.result()
    local, _ = pair.head.complete(prompt, "local")
    assert receipt["fallback"] is None
    assert receipt["remote"]["computed_tokens"] == whole_blocks(LONG_TOKENS)
    assert answer.logprobs == local.logprobs


def test_a_worker_that_is_stopped_is_left_out_and_taken_back(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    expected, _ = pair.head.complete(prompt, "local")
    pair.children["worker"].signal_group(signal.SIGSTOP)
    try:
        answer, receipt = pair.head.complete(prompt, "remote", "skip-local-pool")
        assert answer.logprobs == expected.logprobs
        assert receipt["fallback"]["reason"] == "timeout"
        wait_until(lambda: not pair.head.usable("worker"), "leaving it out")
    finally:
        pair.children["worker"].signal_group(signal.SIGCONT)
    pair.head.wait_for_peer("worker")
    _, receipt = pair.head.complete(prompt, "remote", "skip-local-pool")
    assert receipt["fallback"] is None
    assert receipt["remote"] is not None


def test_a_head_that_starts_anew_serves_on(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    before, receipt = pair.head.complete(prompt, "remote")
    pair.restart("head")
    wait_until(pair.head.client.healthy, "the head's return")
    pair.head.wait_for_peer("worker")
    after, again = pair.head.complete(prompt, "remote")
    assert after.logprobs == before.logprobs
    assert again["epoch"] > receipt["epoch"]
    assert again["local_pool_tokens"] == 0
    assert again["remote"]["pool_tokens"] == whole_blocks(PROMPT_TOKENS)
