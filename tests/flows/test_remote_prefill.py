"""A cold prompt's KV is computed by another process, shipped, imported and decoded from; and reused afterwards."""

from __future__ import annotations

import secrets

from flows.loopback import LoopbackFleet

BLOCK = 64


def fresh_prompt(tokens: int) -> str:
    """ASCII text of `tokens` bytes, which are tokens of the tiny model, that no one has sent before."""
    return secrets.token_hex(tokens)[:tokens]


def test_a_cold_prompt_is_computed_by_the_worker_and_gives_the_local_tokens(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(400)
    remote, receipt = fleet.complete(prompt)
    local, local_receipt = fleet.complete(prompt, "local")
    assert remote.tokens == local.tokens
    assert remote.logprobs == local.logprobs
    assert receipt["decision"]["kind"] == "remote_compute"
    assert receipt["remote"]["node"] == "worker"
    assert receipt["remote"]["computed_tokens"] == 399 // BLOCK * BLOCK
    assert receipt["cached_tokens"] == 399 // BLOCK * BLOCK
    assert receipt["fallback"] is None
    assert local_receipt["cached_tokens"] == 0
    assert local_receipt["local_computed_tokens"] == 400


def test_a_repeated_prompt_hits_the_heads_own_pool(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(300)
    cold, _ = fleet.complete(prompt)
    again, receipt = fleet.complete(prompt)
    assert again.logprobs == cold.logprobs
    assert receipt["decision"]["kind"] == "local"
    assert receipt["local_pool_tokens"] == receipt["cached_tokens"] == 299 // BLOCK * BLOCK
    assert receipt["gain"] == "reuse"


def test_with_the_own_pool_skipped_the_peer_delivers_what_it_holds(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(300)
    cold, _ = fleet.complete(prompt)
    again, receipt = fleet.complete(prompt, "remote", "skip-local-pool")
    assert again.logprobs == cold.logprobs
    assert receipt["decision"]["kind"] == "import"
    assert receipt["remote"]["computed_tokens"] == 0
    assert receipt["remote"]["pool_tokens"] == 299 // BLOCK * BLOCK
    assert receipt["local_pool_tokens"] == 0


def test_a_longer_prompt_takes_its_beginning_from_the_own_pool_and_the_rest_from_the_worker(
    fleet: LoopbackFleet,
) -> None:
    prompt = fresh_prompt(600)
    fleet.complete(prompt[:300])
    whole, receipt = fleet.complete(prompt)
    local, _ = fleet.complete(prompt, "local")
    assert whole.logprobs == local.logprobs
    assert receipt["local_pool_tokens"] == 299 // BLOCK * BLOCK
    assert receipt["remote"]["tokens"] == 599 // BLOCK * BLOCK - 299 // BLOCK * BLOCK


def test_a_short_prompt_stays_local_and_asks_nobody(fleet: LoopbackFleet) -> None:
    before = fleet.node("worker")["counters"]["lookups"]
    _, receipt = fleet.complete(fresh_prompt(60))
    assert receipt["decision"]["kind"] == "local"
    assert receipt["remote"] is None
    assert fleet.node("worker")["counters"]["lookups"] == before
