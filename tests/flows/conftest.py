"""The fleets that flows share, each started once. A flow leaves them as it found them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.loopback import LoopbackFleet, Wanted, running
from flows.prompts import fresh_prompt


@pytest.fixture(scope="session")
def shared_pair(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    """A head with one worker, both with pools that a few long prompts fill."""
    with running(tmp_path_factory.mktemp("pair"), tiny_llama, Wanted(cache={"pool_gb": 8 / 1024})) as fleet:
        yield fleet


def make_whole(fleet: LoopbackFleet) -> None:
    fleet.heal("worker")
    if fleet.children["worker"].ended_within(0):  # a flow has failed in the middle of things
        fleet.restart("worker")
    fleet.head.wait_for_peer("worker")


@pytest.fixture
def pair(shared_pair: LoopbackFleet) -> Iterator[LoopbackFleet]:
    """The pair, whole, before and after each flow: a success ends the worker's pause for good."""
    make_whole(shared_pair)
    yield shared_pair
    make_whole(shared_pair)
    if shared_pair.head.counters()["fallbacks"]:
        shared_pair.head.complete(fresh_prompt(200), "remote", max_tokens=1)
