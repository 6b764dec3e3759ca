"""A cold prompt's KV is computed by another process, shipped, imported and decoded from; and reused afterwards."""

from __future__ import annotations

from flows.loopback import LoopbackFleet
from flows.prompts import BLOCK, fresh_prompt, whole_blocks


def test_a_cold_prompt_is_computed_by_the_worker_and_gives_the_local_tokens(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(400)
    remote, receipt = pair.head.complete(prompt, "remote")
    local, local_receipt = pair.head.complete(prompt, "local")
    assert remote.tokens == local.tokens
    assert remote.logprobs == local.logprobs
    assert receipt["decision"]["kind"] == "remote_compute"
    assert receipt["remote"]["node"] == "worker"
    assert receipt["remote"]["computed_tokens"] == receipt["cached_tokens"] == whole_blocks(400)
    assert receipt["remote"]["epoch"] == pair.card("worker").epoch
    assert receipt["fallback"] is None
    assert local_receipt["cached_tokens"] == 0
    assert local_receipt["local_computed_tokens"] == 400


def test_the_policy_alone_prefers_the_worker(pair: LoopbackFleet) -> None:
    _, receipt = pair.head.complete(fresh_prompt(400))
    # On a crowded machine even a healthy worker may answer the lookup too late.
    assert receipt["fallback"] or receipt["decision"]["reason"] == "policy prefer_remote"


def test_a_repeated_prompt_hits_the_heads_own_pool(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(300)
    cold, _ = pair.head.complete(prompt)
    again, receipt = pair.head.complete(prompt)
    assert again.logprobs == cold.logprobs
    assert receipt["decision"]["kind"] == "local"
    assert receipt["local_pool_tokens"] == receipt["cached_tokens"] == whole_blocks(300)
    assert receipt["gain"] == "reuse"


def test_with_the_own_pool_skipped_the_peer_delivers_what_it_holds(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(300)
    cold, _ = pair.head.complete(prompt, "remote")
    before = pair.head.counters()
    again, receipt = pair.head.complete(prompt, "remote", "skip-local-pool")
    assert again.logprobs == cold.logprobs
    assert receipt["decision"]["kind"] == "import"
    assert receipt["remote"]["computed_tokens"] == 0
    assert receipt["remote"]["pool_tokens"] == whole_blocks(300)
    assert receipt["local_pool_tokens"] == 0
    after = pair.head.counters()
    assert after["remote_hits"] == before["remote_hits"] + 1
    assert after["remote_jobs"] == before["remote_jobs"]


def test_a_longer_prompt_takes_its_beginning_from_the_own_pool_and_the_rest_from_the_worker(
    pair: LoopbackFleet,
) -> None:
    prompt = fresh_prompt(600)
    pair.head.complete(prompt[:300])
    whole, receipt = pair.head.complete(prompt, "remote")
    local, _ = pair.head.complete(prompt, "local")
    assert whole.logprobs == local.logprobs
    assert receipt["local_pool_tokens"] == whole_blocks(300)
    assert receipt["remote"]["tokens"] == whole_blocks(600) - whole_blocks(300)


def test_a_short_prompt_stays_local_and_asks_nobody(pair: LoopbackFleet) -> None:
    before = pair.counter("worker", "lookups")
    _, receipt = pair.head.complete(fresh_prompt(BLOCK - 4))
    assert receipt["decision"]["kind"] == "local"
    assert receipt["remote"] is None
    assert pair.counter("worker", "lookups") == before
