"""Clients that leave: whatever stage their request is in, nobody works on for them."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from faults.proxy import Fault
from flows.heads import try_until, wait_until
from flows.loopback import LoopbackFleet, grown
from flows.prompts import BLOCK, fresh_prompt, whole_blocks

LONG_TOKENS = 4500
BLOCK_BYTES = 32768
AT_ONCE = 4
"""`model_serving.concurrency` of an inventory that does not set it."""
SOON_SECONDS = 60.0
"""For a crowded machine; all of these take moments on one that is not."""
Counters = dict[str, float]


def busy(fleet: LoopbackFleet) -> int:
    """How many requests the head is working on or has waiting."""
    load = fleet.card("head").load
    return load.queued + load.running


def test_while_the_worker_computes(pair: LoopbackFleet) -> None:
    def leave() -> float | None:
        """How many tokens the worker computed for a client that was gone before it had done."""
        before = pair.card("worker").counters
        passed = pair.proxies["worker"].passed("down")
        with pair.head.started(fresh_prompt(LONG_TOKENS), "remote"):
            assert pair.proxies["worker"].wait_until(lambda proxy: proxy.passed("down") > passed + 2 * BLOCK_BYTES, 30)
        wait_until(lambda: busy(pair) == 0, "the end of the head's work")
        wait_until(lambda: pair.card("worker").load.running == 0, "the end of the worker's")
        after = pair.card("worker").counters
        if after["jobs_cancelled"] == before["jobs_cancelled"]:
            return None
        return after["tokens_computed"] - before["tokens_computed"]

    assert try_until(leave, "a job under way") < whole_blocks(LONG_TOKENS)
    assert pair.head.complete(fresh_prompt(100))[0].tokens


def test_a_job_goes_on_for_those_who_still_want_it(pair: LoopbackFleet) -> None:
    def stay() -> Counters | None:
        """The worker's counters before a job that somebody joined and its first client left; None if nobody did."""
        prompt, arrived = fresh_prompt(LONG_TOKENS), list[int]()
        before = pair.card("worker").counters
        with ThreadPoolExecutor(1) as aside:
            with pair.head.started(prompt, "remote"):
                wait_until(grown(lambda: pair.counter("worker", "jobs_started"), before["jobs_started"]), "the job")
                staying = aside.submit(pair.peer("worker").prefill, pair.prefill_call(prompt, arrived))
                joined = grown(lambda: pair.counter("worker", "jobs_joined"), before["jobs_joined"])
                wait_until(lambda: joined() or staying.done(), "company")
            receipt = staying.result()
        assert arrived == list(range(whole_blocks(LONG_TOKENS) // BLOCK))
        if not joined():
            return None
        assert receipt.computed_tokens == whole_blocks(LONG_TOKENS)
        return before

    before = try_until(stay, "a job to join")
    after = pair.card("worker").counters
    assert after["jobs_cancelled"] == before["jobs_cancelled"]
    assert after["jobs_finished"] == before["jobs_finished"] + 1


def test_while_peers_are_asked(pair: LoopbackFleet) -> None:
    def leave() -> bool | None:
        before = pair.head.counters()
        lookups = pair.counter("worker", "lookups")
        pair.head.wait_for_peer("worker")
        pair.proxies["worker"].set(down=Fault(delay_seconds=1.5))
        pair.proxies["worker"].sever()
        with pair.head.started(fresh_prompt(LONG_TOKENS), "remote"):
            wait_until(lambda: pair.counter("worker", "lookups") > lookups or busy(pair) == 0, "the lookup")
        assert pair.head.complete(fresh_prompt(50))[0].tokens
        wait_until(lambda: busy(pair) == 0, "the end of all work")
        pair.heal("worker")
        after = pair.head.counters()
        # Nobody's fault, and nothing was begun.
        same = (after["remote_jobs"], after["fallbacks"]) == (before["remote_jobs"], before["fallbacks"])
        return same or None

    assert try_until(leave, "a lookup under way")


def test_while_the_head_computes(pair: LoopbackFleet) -> None:
    pool = pair.card("head").pool
    with pair.head.started(fresh_prompt(LONG_TOKENS), "local"):
        wait_until(lambda: busy(pair) == 1, "the prefill")
    wait_until(lambda: busy(pair) == 0, "its end", SOON_SECONDS)
    answer, receipt = pair.head.complete(fresh_prompt(100), "local")
    assert answer.tokens
    # The queue that it found was empty.
    assert receipt["times"]["first_token"] < SOON_SECONDS
    assert pool.budget_bytes == pair.card("head").pool.budget_bytes


def test_while_the_answer_is_decoded(pair: LoopbackFleet) -> None:
    before = pair.head.counters()["tokens_computed_local"]
    with pair.head.started(fresh_prompt(100), "local", max_tokens=8000) as client:
        assert b"200 OK" in client.recv(4096)
    wait_until(lambda: busy(pair) == 0, "its end", SOON_SECONDS)
    assert pair.head.counters()["tokens_computed_local"] == before + 100


def test_while_it_waits_for_its_turn(pair: LoopbackFleet) -> None:
    before = pair.head.counters()["tokens_computed_local"]
    with contextlib.ExitStack() as computing:
        for _ in range(AT_ONCE):
            computing.enter_context(pair.head.started(fresh_prompt(LONG_TOKENS), "local"))
        wait_until(lambda: busy(pair) == AT_ONCE, "a full head")
        with pair.head.started(fresh_prompt(LONG_TOKENS), "local"):
            assert busy(pair) == AT_ONCE
    wait_until(lambda: busy(pair) == 0, "the end of all work", SOON_SECONDS)
    assert pair.head.counters()["tokens_computed_local"] == before


@pytest.mark.parametrize("modes", [("local",), ("remote",)])
def test_all_at_once(pair: LoopbackFleet, modes: tuple[str, ...]) -> None:
    with contextlib.ExitStack() as clients:
        for _ in range(12):
            clients.enter_context(pair.head.started(fresh_prompt(1500), *modes))
    wait_until(lambda: busy(pair) == 0, "the end of all work", SOON_SECONDS)
    wait_until(lambda: pair.card("worker").load.running == 0, "the end of the worker's", SOON_SECONDS)
    assert pair.head.complete(fresh_prompt(100))[0].tokens
