"""Other models and settings end to end: what the worker computes gives the log-probabilities of a local run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from flows.inside import worker_inside
from flows.loopback import LoopbackFleet, Plan, Wanted
from flows.prompts import fresh_prompt, whole_blocks
from tiny_models import OWN_WINDOW, MakeFamily

SINK, WINDOW = 4, 128


@dataclass(frozen=True)
class Subject:
    """A fleet of `family` and the prompts that matter to it; `window` rows besides `sink` are kept."""

    family: str
    cache: dict[str, Any]
    lengths: tuple[int, ...]
    window: int | None = None


SUBJECTS = {
    "sink and window": Subject("llama", {"sink": SINK, "window": WINDOW}, (100, 193, 500), WINDOW),
    "sliding": Subject("gemma3", {}, (100, OWN_WINDOW * 2 + 1, 500)),
    "recurrent": Subject("qwen3_next", {}, (100, 129, 500)),
}


@dataclass(frozen=True)
class Stage:
    fleet: LoopbackFleet
    subject: Subject


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory, tiny_family: MakeFamily) -> Iterator[dict[str, Stage]]:
    """All fleets, started at the same time."""
    models = {name: tiny_family(subject.family) for name, subject in SUBJECTS.items()}
    nodes = {"head": Plan("head"), "worker": Plan("worker", early=False)}
    fleets = {
        name: LoopbackFleet(tmp_path_factory.mktemp("fleet"), models[name], Wanted(nodes, cache=subject.cache))
        for name, subject in SUBJECTS.items()
    }
    with contextlib.ExitStack() as running, ThreadPoolExecutor(len(fleets)) as starting:
        for fleet in fleets.values():
            running.push(fleet)
        list(starting.map(LoopbackFleet.__enter__, fleets.values()))
        for fleet in fleets.values():
            running.enter_context(worker_inside(fleet, "worker"))
        yield {name: Stage(fleet, SUBJECTS[name]) for name, fleet in fleets.items()}


@pytest.fixture(params=SUBJECTS)
def stage(request: pytest.FixtureRequest, stages: dict[str, Stage]) -> Stage:
    found = stages[request.param]
    found.fleet.head.wait_for_peer("worker")
    return found


def test_remote_and_imported_prefixes_are_the_local_one(stage: Stage) -> None:
    head, subject = stage.fleet.head, stage.subject
    for length in subject.lengths:
        prompt = fresh_prompt(length)
        cold, receipt = head.complete(prompt, "remote", max_tokens=24)
        again, imported = head.complete(prompt, "remote", "skip-local-pool", max_tokens=24)
        own, reused = head.complete(prompt, max_tokens=24)
        local, alone = head.complete(prompt, "local", max_tokens=24)
        assert cold.tokens == again.tokens == own.tokens == local.tokens
        assert cold.logprobs == again.logprobs == own.logprobs == local.logprobs
        kinds = [one["decision"]["kind"] for one in (receipt, imported, reused, alone)]
        assert kinds == ["remote_compute", "import", "local", "local"]
        cached = [one["cached_tokens"] for one in (receipt, imported, reused, alone)]
        assert cached == [whole_blocks(length)] * 3 + [0]
        forgotten = max(length - SINK - subject.window, 0) if subject.window else 0
        assert {one["forgotten_tokens"] for one in (receipt, imported, reused, alone)} == {forgotten}


def test_a_prompt_that_goes_on_after_an_answer(stage: Stage) -> None:
    """A turn of a conversation: its beginning is here, its end is new."""
    head = stage.fleet.head
    begun = fresh_prompt(200)
    answer, _ = head.complete(begun, "remote", max_tokens=20)
    longer = begun + answer.text + fresh_prompt(150)
    remote, receipt = head.complete(longer, "remote")
    local, _ = head.complete(longer, "local")
    assert remote.logprobs == local.logprobs
    assert receipt["cached_tokens"] == whole_blocks(len(longer))
    assert receipt["local_pool_tokens"] > 0


def test_what_a_window_has_forgotten_is_told(stage: Stage) -> None:
    prompt = fresh_prompt(300)
    answer = stage.fleet.head.post("/v1/completions", {"prompt": prompt, "max_tokens": 2})
    forgotten = answer.headers.get("X-Kakeya-Forgotten-Tokens")
    window = stage.subject.window
    assert forgotten == (str(300 - SINK - window) if window else None)
    described = stage.fleet.head.get("/v1/models")["data"][0]
    assert str(window) in str(described) if window else True
