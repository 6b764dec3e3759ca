"""Workers that pause or die while their head waits: the request is saved, and who comes back is kept."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from faults.proxy import Fault
from flows.heads import Receipt, try_until, wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt
from kakeya_ops.serving.patience import STALL_SECONDS
from kakeya_ops.verify.head_client import Completion

LONG_TOKENS = 3200
BLOCK_BYTES = 32768
KILLS = 2
IDLE_SHARE = 0.3
"""A thread that spins takes all of a core; a slow machine's idle node takes more of its core than a fast one's."""
LOOKED_SECONDS = 3.0


@pytest.mark.slow
def test_a_worker_that_pauses_for_seven_seconds_is_overrun_and_kept(pair: LoopbackFleet) -> None:
    epoch = pair.card("worker").epoch

    def pause() -> tuple[str, Completion, Receipt] | None:
        prompt = fresh_prompt(LONG_TOKENS)
        answer, receipt = ask_and_pause(pair, prompt)
        pair.heal("worker")
        pair.head.wait_for_peer("worker")
        met = receipt["fallback"] and receipt["fallback"]["kept_blocks"]
        return (prompt, answer, receipt) if met else None

    prompt, answer, receipt = try_until(pause, "the middle of a stream")
    assert receipt["fallback"]["reason"] == "overrun"
    assert receipt["times"]["wasted"] > STALL_SECONDS
    assert pair.head.node("worker")["epoch"] == epoch
    local, _ = pair.head.complete(prompt, "local")
    assert answer.logprobs == local.logprobs
    _, receipt = pair.head.complete(fresh_prompt(1000), "remote")
    assert (receipt["decision"]["kind"], receipt["fallback"]) == ("remote_compute", None)


def ask_and_pause(fleet: LoopbackFleet, prompt: str) -> tuple[Completion, Receipt]:
    """The answer to `prompt`, for which the worker is stopped as soon as some of its blocks have come."""
    proxy, worker = fleet.proxies["worker"], fleet.children["worker"]
    proxy.set(down=Fault(bytes_per_second=1_000_000))
    proxy.sever()
    fleet.head.wait_for_peer("worker")
    passed = proxy.passed("down")
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(fleet.head.complete, prompt)
        asked.add_done_callback(lambda _: proxy.look())
        assert proxy.wait_until(lambda proxy: proxy.passed("down") > passed + 3 * BLOCK_BYTES or asked.done(), 60)
        worker.signal_group(signal.SIGSTOP)
        try:
            return asked.result(60)  # it does not wait for the worker to go on
        finally:
            worker.signal_group(signal.SIGCONT)


def kill_under_load(fleet: LoopbackFleet) -> None:
    with ThreadPoolExecutor(3) as clients:
        asked = [clients.submit(fleet.head.complete, fresh_prompt(1500), max_tokens=2) for _ in range(3)]
        wait_until(lambda: fleet.card("worker").load.running > 0 or any(one.done() for one in asked), "some load")
        fleet.forget("worker")
        fleet.end("worker")
        assert all(one.result()[0].tokens for one in asked)


@pytest.mark.slow
def test_after_its_worker_was_killed_under_load_a_head_idles_at_rest(pair: LoopbackFleet) -> None:
    head = psutil.Process(pair.children["head"].pid)
    for _ in range(KILLS):
        kill_under_load(pair)
        pair.restart("worker")
    wait_until(lambda: pair.card("head").load.running == 0, "rest")
    before = head.cpu_times()
    with pytest.raises(psutil.TimeoutExpired):
        head.wait(LOOKED_SECONDS)
    after = head.cpu_times()
    spent = after.user + after.system - before.user - before.system
    assert spent < IDLE_SHARE * LOOKED_SECONDS, spent
