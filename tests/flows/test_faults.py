"""Whatever breaks between head and worker, the answer's tokens are the local ones and the right reason is counted."""

from __future__ import annotations

import pytest
from faults.proxy import Accept, Fault
from flows.loopback import LoopbackFleet
from flows.test_remote_prefill import fresh_prompt

PROMPT_TOKENS = 1000
BLOCK_BYTES = 32768

FAULTS = {
    "refused": ("refuse", Fault(), {"unreachable"}),
    "cut at once": ("pass", Fault(cut_after_bytes=1), {"unreachable"}),
    "cut in the first block": ("pass", Fault(cut_after_bytes=BLOCK_BYTES // 2), {"unreachable"}),
    "cut in mid-stream": ("pass", Fault(cut_after_bytes=7 * BLOCK_BYTES), {"unreachable"}),
    "first block corrupt": ("pass", Fault(corrupt_at_byte=BLOCK_BYTES // 2), {"corrupt"}),
    "middle block corrupt": ("pass", Fault(corrupt_at_byte=7 * BLOCK_BYTES), {"corrupt"}),
    "last block corrupt": ("pass", Fault(corrupt_at_byte=15 * BLOCK_BYTES), {"corrupt"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_stream_ends_in_the_local_tokens(fleet: LoopbackFleet, name: str) -> None:
    accept, down, reasons = FAULTS[name]
    prompt = fresh_prompt(PROMPT_TOKENS)
    expected, _ = fleet.complete(prompt, "local")
    before = fleet.counters()
    _break_streams(fleet, accept, down)
    answer, receipt = fleet.complete(prompt, "remote", "skip-local-pool")
    assert answer.logprobs == expected.logprobs
    assert receipt["remote"] is None
    after = fleet.counters()
    if receipt["fallback"] is None:
        # Not even the lookup came through, so the head never counted on the worker.
        assert receipt["decision"]["kind"] == "local"
        return
    reason = receipt["fallback"]["reason"]
    assert reason in reasons
    assert after["by_reason"].get(reason, 0) == before["by_reason"].get(reason, 0) + 1
    assert after["fallbacks"] == before["fallbacks"] + 1
    assert receipt["cached_tokens"] == receipt["fallback"]["kept_blocks"] * receipt["block_tokens"]


def test_blocks_that_arrived_before_the_cut_are_kept(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    _break_streams(fleet, "pass", Fault(cut_after_bytes=9 * BLOCK_BYTES))
    _, receipt = fleet.complete(prompt, "remote")
    assert receipt["fallback"]["kept_blocks"] >= 7
    assert receipt["local_computed_tokens"] == PROMPT_TOKENS - receipt["cached_tokens"]


def _break_streams(fleet: LoopbackFleet, accept: Accept, down: Fault) -> None:
    """From the next connection on; those that idle in the head's client are ended, so that it must make one."""
    fleet.wait_for_peer("worker")
    fleet.proxies["worker"].set(accept, down=down)
    fleet.proxies["worker"].sever()
