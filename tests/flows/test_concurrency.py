"""Many clients at once: everybody's answer is the one that they would have had alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from flows.heads import Receipt
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.verify.head_client import Completion

CLIENTS = 8
PLACES = 4 + 16
"""`model_serving.concurrency` and `defaults.queue` of an inventory that does not set them."""


Plans = list[tuple[str, tuple[str, ...]]]


def prompts_of(client: int, shared: str) -> Plans:
    """What one client asks, one after the other, and how: some prompts begin like everybody's."""
    own = fresh_prompt(120 + 20 * client)
    return [(shared + own, ()), (own, ("remote",)), (own, ()), (shared[:200] + own[:100], ("remote",)), (own[:50], ())]


def ask_in_turn(fleet: LoopbackFleet, plan: Plans) -> list[tuple[Completion, Receipt]]:
    return [fleet.head.complete(prompt, *modes, max_tokens=16) for prompt, modes in plan]


def test_clients_at_once_get_the_answers_that_they_get_alone(pair: LoopbackFleet) -> None:
    shared = fresh_prompt(330)
    plans = [prompts_of(client, shared) for client in range(CLIENTS)]
    before = pair.head.counters()
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(partial(ask_in_turn, pair), plans))
    after = pair.head.counters()
    for (prompt, _), (answer, receipt) in zip(chain(*plans), chain(*answers), strict=True):
        alone, _ = pair.head.complete(prompt, "local", max_tokens=16)
        assert answer.tokens == alone.tokens, receipt
    names = ("tokens_computed_local", "tokens_computed_remote", "tokens_reused")
    counted = {name: after[name] - before[name] for name in names}
    assert sum(counted.values()) == sum(len(prompt) for prompt, _ in chain(*plans))
    assert all(counted.values()), counted
    receipts = [receipt for _, receipt in chain(*answers)]
    assert counted["tokens_computed_local"] == sum(receipt["local_computed_tokens"] for receipt in receipts)
    assert after["fallbacks"] - before["fallbacks"] == sum(receipt["fallback"] is not None for receipt in receipts)


def test_no_place_is_lost(pair: LoopbackFleet) -> None:
    def ask(_: int) -> int:
        return len(pair.head.complete(fresh_prompt(100), max_tokens=8)[0].tokens)

    with ThreadPoolExecutor(PLACES) as clients:
        for _ in range(2):
            assert list(clients.map(ask, range(PLACES))) == [8] * PLACES


def test_equal_requests_at_once_are_one_job(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(2000)
    before = pair.card("worker").counters
    with ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(pair.head.complete, prompt, "remote") for _ in range(4)]
        answers = [one.result() for one in asked]
    after = pair.card("worker").counters
    assert len({answer.tokens for answer, _ in answers}) == 1
    assert after["jobs_started"] - before["jobs_started"] + after["jobs_joined"] - before["jobs_joined"] <= 4
    assert after["tokens_computed"] - before["tokens_computed"] == whole_blocks(2000)
