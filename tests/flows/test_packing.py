"""Over a slow link KV travels packed, and means the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.proxy import Fault
from flows.loopback import LoopbackFleet, Wanted, running
from flows.prompts import fresh_prompt, whole_blocks

PROMPT_TOKENS = 3000
"""More than a mebibyte of KV: shorter transfers call no link slow."""
BYTES_PER_SECOND = 4_000_000


@pytest.fixture(scope="module")
def packing_fleet(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    wanted = Wanted(prefill={"packing": "measured"})
    with running(tmp_path_factory.mktemp("packing"), tiny_llama, wanted) as fleet:
        yield fleet


def test_a_slow_link_is_found_and_its_blocks_are_packed(packing_fleet: LoopbackFleet) -> None:
    fleet = packing_fleet
    fleet.proxies["worker"].set(down=Fault(bytes_per_second=BYTES_PER_SECOND))
    fleet.proxies["worker"].sever()
    fleet.head.wait_for_peer("worker")
    prompt = fresh_prompt(PROMPT_TOKENS)
    expected, _ = fleet.head.complete(prompt, "local")
    links = []
    for _ in range(3):  # the first transfer computes, the second measures the link alone
        answer, receipt = fleet.head.complete(prompt, "remote", "skip-local-pool")
        assert answer.logprobs == expected.logprobs
        assert receipt["remote"]["tokens"] == whole_blocks(PROMPT_TOKENS)
        links.append(receipt["remote"]["link"])
    assert "packing" not in links[0]
    assert links[-1]["packing"] == "exponents"
    assert links[-1]["packed_share"] < 0.95
