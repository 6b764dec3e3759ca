"""A real small language model end to end: sense in its answers, and the same tokens with a worker and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.loopback import LoopbackFleet, Wanted, running
from kakeya_ops.demo.smollm2 import find_smollm2, prepare_smollm2
from kakeya_ops.errors import InputError

pytestmark = [pytest.mark.real_model, pytest.mark.slow]

BLOCK = 16
QUESTION = "What is the capital of France? Answer with one word."
STORY = "Once upon a time there was a small village by the sea, and in it lived an old fisherman who"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackFleet]:
    try:
        find_smollm2()
    except InputError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    model = prepare_smollm2(tmp_path_factory.mktemp("real"))
    wanted = Wanted(cache={"block_tokens": BLOCK}, prefill={"min_tokens": BLOCK})
    with running(tmp_path_factory.mktemp("real-fleet"), Path(model), wanted) as fleet:
        fleet.head.wait_for_peer("worker")
        yield fleet


def test_it_makes_sense_from_the_workers_kv(fleet: LoopbackFleet) -> None:
    request_id, answer = fleet.head.client.chat("tiny", QUESTION, max_tokens=8)
    receipt = fleet.head.client.receipt(request_id)
    assert "Paris" in answer
    assert receipt["fallback"] or receipt["remote"]["computed_tokens"] > 0


def test_its_tokens_are_the_same_with_the_worker_and_without(fleet: LoopbackFleet) -> None:
    remote, receipt = fleet.head.complete(STORY, "remote", max_tokens=12)
    local, _ = fleet.head.complete(STORY, "local", max_tokens=12)
    assert receipt["remote"]["computed_tokens"] == receipt["cached_tokens"] >= BLOCK
    assert remote.tokens == local.tokens
    assert remote.logprobs == local.logprobs
