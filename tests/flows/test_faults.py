"""Whatever breaks between head and worker, the answer's tokens are the local ones and the right reason is counted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from faults.proxy import Accept, Fault
from flows.heads import Receipt, try_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.errors import PeerTimeout
from kakeya_ops.peer.connection import DEFAULT_TIMEOUTS, Timeouts
from kakeya_ops.serving.neighbours import LOOKUP_SECONDS
from kakeya_ops.verify.head_client import Completion

PROMPT_TOKENS = 1000
BLOCK_BYTES = 32768
BLOCKS = whole_blocks(PROMPT_TOKENS) // 64


WHOLE = Fault()


@dataclass(frozen=True)
class Case:
    """What is broken, the reasons that are right for it, and the modes of the request that meets it.

    At least `kept_blocks` have arrived before.
    """

    reasons: frozenset[str]
    down: Fault = WHOLE
    accept: Accept = "pass"
    modes: tuple[str, ...] = ("remote", "skip-local-pool")
    kept_blocks: int = 0


UNREACHABLE, CORRUPT, TIMEOUT = frozenset({"unreachable"}), frozenset({"corrupt"}), frozenset({"timeout"})
CASES = {
    "refused": Case(UNREACHABLE, accept="refuse"),
    "cut at once": Case(UNREACHABLE, Fault(cut_after_bytes=1)),
    "cut in the first block": Case(UNREACHABLE, Fault(cut_after_bytes=BLOCK_BYTES // 2)),
    "cut in mid-stream": Case(UNREACHABLE, Fault(cut_after_bytes=9 * BLOCK_BYTES), kept_blocks=6),
    "cut in the last block": Case(UNREACHABLE, Fault(cut_after_bytes=BLOCKS * BLOCK_BYTES), kept_blocks=BLOCKS - 3),
    "first block corrupt": Case(CORRUPT, Fault(corrupt_at_byte=BLOCK_BYTES // 2)),
    "middle block corrupt": Case(CORRUPT, Fault(corrupt_at_byte=7 * BLOCK_BYTES)),
    "last block corrupt": Case(CORRUPT, Fault(corrupt_at_byte=BLOCKS * BLOCK_BYTES)),
    "black hole": Case(TIMEOUT, accept="ignore", modes=()),
    "answers swallowed": Case(TIMEOUT, Fault(drop_after_bytes=0), modes=()),
    "answers late": Case(TIMEOUT, Fault(delay_seconds=3.0)),
}


@dataclass(frozen=True)
class Outcome:
    expected: Completion
    answer: Completion
    receipt: Receipt
    before: dict[str, Any]
    after: dict[str, Any]


def meet(fleet: LoopbackFleet, case: Case) -> Outcome:
    """The outcome of a request that meets the fault, and what it would have been without."""
    prompt = fresh_prompt(PROMPT_TOKENS)
    expected, _ = fleet.head.complete(prompt, "local")
    before = fleet.head.counters()
    answer, receipt = break_streams(fleet, case, prompt)
    return Outcome(expected, answer, receipt, before, fleet.head.counters())


def break_streams(fleet: LoopbackFleet, case: Case, prompt: str) -> tuple[Completion, Receipt]:
    """The first answer that meets the fault before the exchange of cards does, which would take the worker out.

    New connections are broken; those that idle in the head's client are ended, so that it must make one.
    """

    def attempt() -> tuple[Completion, Receipt] | None:
        fleet.head.wait_for_peer("worker")
        fleet.proxies["worker"].set(case.accept, down=case.down)
        fleet.proxies["worker"].sever()
        # The local answer, or the attempt before, has filled the head's own pool.
        answer, receipt = fleet.head.complete(prompt, *(case.modes or ("skip-local-pool",)))
        fleet.heal("worker")
        return None if receipt["fallback"] is None else (answer, receipt)

    return try_until(attempt, "the fault")


@pytest.mark.parametrize("name", CASES)
def test_a_fault_ends_in_the_local_tokens_and_is_counted_by_its_reason(pair: LoopbackFleet, name: str) -> None:
    met = meet(pair, CASES[name])
    assert met.answer.tokens == met.expected.tokens
    assert met.answer.logprobs == met.expected.logprobs
    assert met.receipt["remote"] is None
    fallback = met.receipt["fallback"]
    assert (fallback["worker"], fallback["reason"] in CASES[name].reasons) == ("worker", True), fallback
    reasons = met.before["by_reason"] | {fallback["reason"]: met.before["by_reason"].get(fallback["reason"], 0) + 1}
    assert met.after["by_reason"] == reasons
    assert met.after["fallbacks"] == met.before["fallbacks"] + 1
    assert met.receipt["cached_tokens"] == fallback["kept_blocks"] * met.receipt["block_tokens"]
    assert met.receipt["local_computed_tokens"] == PROMPT_TOKENS - met.receipt["cached_tokens"]
    assert fallback["kept_blocks"] >= CASES[name].kept_blocks
    received = met.after["bytes_received"] - met.before["bytes_received"]
    assert received >= fallback["kept_blocks"] * BLOCK_BYTES
    if not CASES[name].modes:
        # Less than the patience of any call to a peer, however crowded the machine.
        assert LOOKUP_SECONDS <= met.receipt["times"]["lookup"] < DEFAULT_TIMEOUTS.reply_seconds
    assert pair.head.client.healthy()


def test_a_slow_worker_is_no_fault(pair: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    pair.proxies["worker"].set(down=Fault(delay_seconds=0.2, bytes_per_second=400_000))
    pair.proxies["worker"].sever()
    pair.head.wait_for_peer("worker")
    answer, receipt = pair.head.complete(prompt, "remote")
    pair.heal("worker")
    local, _ = pair.head.complete(prompt, "local")
    assert receipt["fallback"] is None
    assert receipt["remote"]["tokens"] == whole_blocks(PROMPT_TOKENS)
    assert receipt["times"]["transfer"] > 0.5
    assert answer.logprobs == local.logprobs


SILENCE = Timeouts(silence_seconds=3.0)
"""More than the two seconds after which a worker that still computes says so."""


def test_a_stream_lives_as_long_as_something_comes(pair: LoopbackFleet) -> None:
    arrived: list[int] = []
    pair.proxies["worker"].set(down=Fault(bytes_per_second=130_000))
    client = pair.peer("worker", proxied=True, timeouts=SILENCE)
    receipt = client.prefill(pair.prefill_call(fresh_prompt(PROMPT_TOKENS), arrived))
    assert arrived == list(range(BLOCKS))
    assert receipt.payload_bytes / 130_000 > SILENCE.silence_seconds


def test_a_silent_stream_is_given_up(pair: LoopbackFleet) -> None:
    arrived: list[int] = []
    pair.proxies["worker"].set(down=Fault(drop_after_bytes=5 * BLOCK_BYTES))
    client = pair.peer("worker", proxied=True, timeouts=SILENCE)
    with pytest.raises(PeerTimeout):
        client.prefill(pair.prefill_call(fresh_prompt(PROMPT_TOKENS), arrived))
    assert 0 < len(arrived) < BLOCKS


@pytest.mark.slow
def test_the_head_gives_a_silent_stream_up(pair: LoopbackFleet) -> None:
    met = meet(pair, Case(TIMEOUT, Fault(drop_after_bytes=7 * BLOCK_BYTES)))
    assert met.answer.logprobs == met.expected.logprobs
    assert met.receipt["decision"]["kind"] == "remote_compute"
    assert met.receipt["fallback"]["reason"] == "timeout"
    assert met.receipt["fallback"]["kept_blocks"] > 0


AT_ONCE = 4
ROUNDS = 4
TOLERANCE_BYTES = 4 * 2**20
"""Two thirds of what the rounds receive, and half of what they allocate to receive into."""


@pytest.mark.slow
def test_after_many_faults_the_memory_is_what_it_was(pair: LoopbackFleet) -> None:
    budget_bytes = pair.card("head").pool.budget_bytes
    while pair.card("head").pool.used_bytes < budget_bytes - 2 * BLOCK_BYTES:
        pair.head.complete(fresh_prompt(PROMPT_TOKENS), "local", max_tokens=1)
    for _ in range(ROUNDS):  # until threads and allocators have what they like to keep
        break_many(pair)
    base_bytes = pair.resident_bytes("head")
    received_bytes = pair.head.counters()["bytes_received"]
    for _ in range(ROUNDS):
        break_many(pair)
    assert pair.head.counters()["bytes_received"] - received_bytes > TOLERANCE_BYTES
    assert pair.resident_bytes("head") - base_bytes < TOLERANCE_BYTES
    assert pair.card("head").pool.used_bytes <= budget_bytes


def break_many(fleet: LoopbackFleet) -> None:
    """Have several streams cut near their end at the same time; the worker is forgiven afterwards."""
    fleet.proxies["worker"].set(down=Fault(cut_after_bytes=(BLOCKS - 2) * BLOCK_BYTES))
    fleet.proxies["worker"].sever()
    fleet.head.wait_for_peer("worker")
    with ThreadPoolExecutor(AT_ONCE) as clients:
        prompts = [fresh_prompt(PROMPT_TOKENS) for _ in range(AT_ONCE)]
        answers = list(clients.map(lambda prompt: fleet.head.complete(prompt, "remote"), prompts))
    fleet.heal("worker")
    assert any(receipt["fallback"] for _, receipt in answers)
    fleet.head.wait_for_peer("worker")
    fleet.head.complete(fresh_prompt(100), "remote", max_tokens=1)
