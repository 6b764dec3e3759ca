"""What users of comparable systems reported, tried here: docs/field-reports.md says which is which."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faults.proxy import Fault
from flows.heads import wait_until
from flows.loopback import LoopbackFleet, Wanted, running
from flows.prompts import fresh_prompt, whole_blocks

PROMPT_TOKENS = 1000
CLIENTS = 8
ROUNDS = 4
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    """A head and a worker whose pools have room for two prompts."""
    wanted = Wanted(cache={"pool_gb": 1 / 1024})
    with running(tmp_path_factory.mktemp("crowded"), tiny_llama, wanted) as fleet:
        yield fleet


def test_a_full_pool_under_concurrent_load_keeps_nobody_waiting(crowded: LoopbackFleet) -> None:
    crowded.head.wait_for_peer("worker")
    prompts = [fresh_prompt(PROMPT_TOKENS) for _ in range(CLIENTS * ROUNDS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(lambda prompt: crowded.head.complete(prompt, max_tokens=4), prompts))
    assert [len(answer.tokens) for answer, _ in answers] == [4] * len(prompts)
    assert crowded.head.counters()["evictions"] > 0
    pool = crowded.card("head").pool
    assert pool.used_bytes <= pool.budget_bytes
    answer, _ = crowded.head.complete(prompts[0])
    assert answer.tokens == crowded.head.complete(prompts[0], "local")[0].tokens
    assert crowded.head.client.healthy()


def test_a_client_that_resets_its_stream_costs_a_line_in_the_log_at_most(crowded: LoopbackFleet) -> None:
    with crowded.head.started(fresh_prompt(100), "local", max_tokens=4000) as client:
        assert b"200 OK" in client.recv(4096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    wait_until(lambda: crowded.card("head").load.running == 0, "the end of the decoding")
    assert crowded.head.complete(fresh_prompt(100))[0].tokens
    log = crowded.children["head"].log.read_text()
    assert "Traceback" not in log
    assert "BrokenPipe" not in log


def test_six_equal_requests_are_one_computation_and_five_hits(pair: LoopbackFleet) -> None:
    pair.head.wait_for_peer("worker")
    prompt = fresh_prompt(PROMPT_TOKENS)
    before = pair.head.counters()
    used_bytes = pair.card("head").pool.used_bytes
    answers = [pair.head.complete(prompt, max_tokens=1) for _ in range(6)]
    after = pair.head.counters()
    assert len({answer.logprobs for answer, _ in answers}) == 1
    assert [receipt["cached_tokens"] for _, receipt in answers[1:]] == [whole_blocks(PROMPT_TOKENS)] * 5
    computed = sum(after[name] - before[name] for name in ("tokens_computed_local", "tokens_computed_remote"))
    assert computed == PROMPT_TOKENS + 5 * (PROMPT_TOKENS - whole_blocks(PROMPT_TOKENS))
    blocks = whole_blocks(PROMPT_TOKENS) // 64
    assert pair.card("head").pool.used_bytes - used_bytes <= blocks * 32768


def test_an_export_while_an_import_is_running(pair: LoopbackFleet) -> None:
    imported, exported = fresh_prompt(PROMPT_TOKENS), fresh_prompt(2 * PROMPT_TOKENS)
    pair.head.wait_for_peer("worker")
    expected, _ = pair.head.complete(imported, "remote")
    passed = pair.proxies["worker"].passed("down")
    pair.proxies["worker"].set(down=Fault(bytes_per_second=400_000))
    pair.proxies["worker"].sever()
    pair.head.wait_for_peer("worker")
    with ThreadPoolExecutor(1) as aside:
        coming = aside.submit(pair.head.complete, imported, "remote", "skip-local-pool")
        assert pair.proxies["worker"].wait_until(lambda proxy: proxy.passed("down") > passed + 2 * 32768, 30)
        computed, computed_receipt = pair.head.complete(exported, "local")
        answer, receipt = coming.result()
    pair.heal("worker")
    assert (receipt["fallback"], receipt["remote"]["tokens"]) == (None, whole_blocks(PROMPT_TOKENS))
    assert answer.logprobs == expected.logprobs
    assert computed_receipt["local_computed_tokens"] == 2 * PROMPT_TOKENS
    again, receipt = pair.head.complete(exported)
    assert (again.logprobs, receipt["cached_tokens"]) == (computed.logprobs, whole_blocks(2 * PROMPT_TOKENS))
