"""Prefixes in a fleet of real processes: kept by peers, fetched from several at once, and the answers among them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faults.proxy import Fault
from flows.heads import Receipt, wait_until
from flows.loopback import LoopbackFleet, Plan, Wanted, running
from flows.prompts import BLOCK, fresh_prompt, whole_blocks
from kakeya_ops.serving.cache import write_identity

LONG_TOKENS = 4500
SHORT_TOKENS = 500
ANSWER_TOKENS = 3 * BLOCK
PEERS = ("left", "right")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    """A head, a cache and a worker, which both keep everything."""
    directory = tmp_path_factory.mktemp("plane")
    nodes = {"right": Plan("worker"), "head": Plan("head"), "left": Plan("cache", early=False)}
    wanted = Wanted(nodes, cache={"replicas": 2}, prefill={"answers": True})
    with running(directory, tiny_llama, wanted) as fleet:
        write_identity(directory / "fleet.key.identity.json", fleet.identity)
        fleet.start("left")
        fleet.wait_ready("left")
        meet(fleet)
        yield fleet


def meet(fleet: LoopbackFleet) -> None:
    for name in PEERS:
        fleet.head.wait_for_peer(name)


def held_blocks(fleet: LoopbackFleet, name: str, prompt: str) -> int:
    hashes = fleet.hashes(fleet.tokens(prompt))
    with_client = fleet.peer(name)
    return with_client.lookup(fleet.identity.digest, hashes).resume_blocks


def answered_and_kept(fleet: LoopbackFleet, prompt: str) -> tuple[str, ...]:
    """The answer to `prompt`, when both peers hold it."""
    answer, _ = fleet.head.complete(prompt)
    for name in PEERS:
        wait_until(lambda name=name: held_blocks(fleet, name, prompt) * BLOCK >= whole_blocks(len(prompt)), name)  # type: ignore[misc]
    return answer.tokens


def test_what_was_computed_outlives_the_head_and_a_peer_that_is_killed_in_mid_stream(fleet: LoopbackFleet) -> None:
    prompts = fresh_prompt(LONG_TOKENS), fresh_prompt(LONG_TOKENS)
    answers = [answered_and_kept(fleet, prompt) for prompt in prompts]
    assert fleet.head.counters()["blocks_dropped"] == 0
    fleet.end("head")
    fleet.start("head")
    fleet.wait_ready("head")
    meet(fleet)
    answer, receipt = fleet.head.complete(prompts[0], "remote")
    assert answer.tokens == answers[0]
    assert (receipt["decision"]["kind"], receipt["cached_tokens"]) == ("import", whole_blocks(LONG_TOKENS))
    assert receipt["local_pool_tokens"] == receipt["remote"]["computed_tokens"] == 0
    assert sum(one["payload_bytes"] for one in receipt["remote"]["sources"]) == receipt["remote"]["payload_bytes"]
    tokens, receipt = killed_in_mid_stream(fleet, prompts[1])
    assert tokens == answers[1]
    assert receipt["fallback"] is None
    assert receipt["cached_tokens"] == whole_blocks(LONG_TOKENS)
    sources = {one["node"]: one for one in receipt["remote"]["sources"]}
    assert sources["left"]["fault"] == "unreachable"
    assert sources["left"]["blocks"] > 0 < sources["right"]["blocks"]
    assert sources["right"]["fault"] is None
    assert fleet.head.counters()["transfers_resumed"] == 1
    assert fleet.head.counters()["fallbacks"] == 0
    fleet.heal("right")
    fleet.heal("left")
    fleet.restart("left")
    assert held_blocks(fleet, "left", prompts[1]) == 0


def killed_in_mid_stream(fleet: LoopbackFleet, prompt: str) -> tuple[tuple[str, ...], Receipt]:
    """The answer to `prompt` over slow links, ``left`` being killed when it has sent a few blocks."""
    for name in PEERS:
        fleet.proxies[name].set(down=Fault(bytes_per_second=400_000))
        fleet.proxies[name].sever()
    meet(fleet)
    before = fleet.proxies["left"].passed("down")
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(fleet.head.complete, prompt, "remote")
        assert fleet.proxies["left"].wait_until(lambda proxy: proxy.passed("down") > before + 200_000, 30)
        fleet.end("left")
        answer, receipt = asked.result()
    return answer.tokens, receipt


def test_the_second_turn_finds_the_first_ones_answer(fleet: LoopbackFleet) -> None:
    """Its tokens are letters, so that the text is tokenized as it was decoded."""
    meet(fleet)
    done = fleet.head.counters()["answers_prefilled"]
    messages: list[dict[str, Any]] = [{"role": "user", "content": fresh_prompt(SHORT_TOKENS)}]
    answer, first = chat(fleet, messages)
    wait_until(lambda: fleet.head.counters()["answers_prefilled"] > done, "the answer's prefill")
    follow_up = {"role": "user", "content": "and then?"}
    turn = [*messages, {"role": "assistant", "content": answer}, follow_up]
    again, second = chat(fleet, turn)
    assert second["cached_tokens"] >= whole_blocks(first["prompt_tokens"] + ANSWER_TOKENS)
    assert second["local_pool_tokens"] == second["cached_tokens"]
    fleet.end("head")
    fleet.start("head")
    fleet.wait_ready("head")
    meet(fleet)
    alone, third = chat(fleet, turn)
    # On a crowded machine even a healthy peer may answer the lookup too late.
    assert third["fallback"] or third["decision"]["kind"] in ("import", "remote_compute")
    assert alone == again


def chat(fleet: LoopbackFleet, messages: list[dict[str, Any]]) -> tuple[str, Receipt]:
    letters = {str(token): 100 for token in fleet.tokens("abcdefgh")}
    body = {"messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS, "logit_bias": letters}
    response = fleet.head.post("/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    text = response.json()["choices"][0]["message"]["content"]
    return text, fleet.head.client.receipt(response.headers["x-request-id"])
