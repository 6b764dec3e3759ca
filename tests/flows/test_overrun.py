"""Workers that pause or die while their head waits: the request is saved, and who comes back is kept."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from faults.proxy import Fault
from flows.heads import wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt
from kakeya_ops.serving.patience import STALL_SECONDS

LONG_TOKENS = 3200
BLOCK_BYTES = 32768
KILLS = 2
IDLE_SHARE = 0.05
LOOKED_SECONDS = 3.0


@pytest.mark.slow
def test_a_worker_that_pauses_for_seven_seconds_is_overrun_and_kept(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(LONG_TOKENS)
    proxy, worker = pair.proxies["worker"], pair.children["worker"]
    proxy.set(down=Fault(bytes_per_second=1_000_000))
    proxy.sever()
    pair.head.wait_for_peer("worker")
    passed, epoch = proxy.passed("down"), pair.card("worker").epoch
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(pair.head.complete, prompt)
        assert proxy.wait_until(lambda proxy: proxy.passed("down") > passed + 3 * BLOCK_BYTES, 30)
        worker.signal_group(signal.SIGSTOP)
        try:
            answer, receipt = asked.result(60)  # it does not wait for the worker to go on
        finally:
            worker.signal_group(signal.SIGCONT)
    assert receipt["fallback"]["reason"] == "overrun"
    assert receipt["fallback"]["kept_blocks"] > 0
    assert receipt["times"]["wasted"] > STALL_SECONDS
    pair.heal("worker")
    pair.head.wait_for_peer("worker")
    assert pair.head.node("worker")["epoch"] == epoch
    local, _ = pair.head.complete(prompt, "local")
    assert answer.logprobs == local.logprobs
    _, receipt = pair.head.complete(fresh_prompt(1000))
    assert (receipt["decision"]["kind"], receipt["fallback"]) == ("remote_compute", None)


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
