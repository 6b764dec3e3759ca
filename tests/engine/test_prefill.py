"""The prefill queue in the test's own thread: the grid, turns, ends, and what is left in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import pytest

from engine_bench import BLOCK_TOKENS, Bench, Recorder, memory_comes_back_to, prompt, run, throw
from kakeya_ops.engine import prefill
from kakeya_ops.engine.leaves import flatten
from kakeya_ops.engine.prefill import Cancelled, PrefillQueue, PrefillTask
from kakeya_ops.errors import EngineError
from kakeya_ops.kv.pool import StoredPart

MakeBench = Callable[[str], Bench]


@dataclass
class Outcome:
    """How one task went."""

    caches: list[list[Any]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    blocks: dict[int, tuple[StoredPart | None, ...]] = field(default_factory=dict)
    progress: list[int] = field(default_factory=list)

    def task(self, tokens: int, **options: Any) -> PrefillTask:
        task = PrefillTask(prompt(tokens), tokens, self.caches.append, self.errors.append, **options)
        task.on_block = task.on_block or self.blocks.__setitem__
        task.on_progress = task.on_progress or self.progress.append
        return task


def record(bench: Bench) -> tuple[Recorder, PrefillQueue]:
    recorder = Recorder(bench.model)
    return recorder, replace(bench, model=recorder).queue()


@pytest.mark.parametrize("tokens", [0, 1, BLOCK_TOKENS - 1, BLOCK_TOKENS, BLOCK_TOKENS + 1, 3 * BLOCK_TOKENS - 1])
def test_every_chunk_lies_on_the_grid_and_only_whole_ones_are_exported(llama: Bench, tokens: int) -> None:
    recorder, queue = record(llama)
    outcome = Outcome()
    run(queue, outcome.task(tokens))
    whole, rest = divmod(tokens, BLOCK_TOKENS)
    assert recorder.chunks == [BLOCK_TOKENS] * whole + [rest] * bool(rest)
    assert sorted(outcome.blocks) == list(range(whole))
    assert [leaf.offset for leaf in flatten(outcome.caches[0])] == [tokens, tokens]
    assert outcome.progress == [min((n + 1) * BLOCK_TOKENS, tokens) for n in range(whole + bool(rest))]


def test_what_was_imported_is_not_computed_again(llama: Bench) -> None:
    tokens = 3 * BLOCK_TOKENS + 5
    prefix = llama.assemble(llama.export(prompt(tokens), 2), 2)
    recorder, queue = record(llama)
    outcome = Outcome()
    task = outcome.task(tokens, prefix=prefix)
    assert task.remaining_tokens == BLOCK_TOKENS + 5
    run(queue, task)
    assert recorder.chunks == [BLOCK_TOKENS, 5]
    assert list(outcome.blocks) == [2]


@pytest.mark.parametrize("family", ["llama", "granite_hybrid"])
def test_an_imported_prefix_continues_bit_for_bit_as_a_computed_one(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    tokens = prompt(5 * BLOCK_TOKENS + 7)
    parts = bench.export(tokens, 5)
    expected = bench.logits(bench.prefill(tokens), 65)
    for blocks in range(1, 6):
        cache = bench.prefill(tokens, prefix=bench.assemble(parts, blocks))
        assert mx.array_equal(bench.logits(cache, 65), expected).item(), blocks


@pytest.mark.parametrize("family", ["llama", "granite_hybrid"])
def test_one_empty_part_of_a_prefix_would_be_noticed(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    tokens = prompt(4 * BLOCK_TOKENS + 7)
    parts = bench.export(tokens, 4)
    expected = bench.logits(bench.prefill(tokens), 65)
    for block, part in bench.layout.needed(4):
        stored = list(parts[block])
        stored[part] = StoredPart.of(bytes(bench.layout.parts[part].nbytes))
        cache = bench.prefill(tokens, prefix=bench.assemble({**parts, block: tuple(stored)}, 4))
        difference = mx.abs(bench.logits(cache, 65) - expected).max() / mx.std(expected)
        assert difference.item() > 0.01, (block, part)


def test_states_are_kept_where_they_are_wanted(bench_of: MakeBench) -> None:
    bench = bench_of("mamba2")

    def kept(blocks: int, keep_states: frozenset[int] | None) -> list[int]:
        outcome = Outcome()
        run(bench.queue(), outcome.task(blocks * BLOCK_TOKENS + 3, keep_states=keep_states))
        return [block for block, parts in outcome.blocks.items() if parts[0] is not None]

    assert kept(18, None) == [15, 17]
    assert kept(3, None) == [2]
    assert kept(4, frozenset({0, 2})) == [0, 2]
    assert kept(2, frozenset()) == []


@pytest.mark.parametrize(
    ("together", "order"),
    [(1, "aabbbcc"), (2, "ababcbc"), (3, "abcabcb"), (9, "abcabcb")],
)
def test_tasks_take_turns_as_many_as_may(llama: Bench, together: int, order: str) -> None:
    turns: list[str] = []
    tasks = []
    for name, chunks in (("a", 2), ("b", 3), ("c", 2)):
        tasks.append(Outcome().task(chunks * BLOCK_TOKENS, on_progress=lambda done, name=name: turns.append(name)))
    run(llama.queue(together=together), *tasks)
    assert "".join(turns) == order


def test_who_waits_keeps_his_place_while_others_take_turns(llama: Bench) -> None:
    ends: list[str] = []
    tasks = [PrefillTask(prompt(48), 48, lambda cache, name=name: ends.append(name), throw) for name in "abcdefgh"]
    run(llama.queue(together=4), *tasks)
    assert "".join(ends) == "abcdefgh"


def test_cancelled_tasks_leave_at_the_next_step_wherever_they_stand(llama: Bench) -> None:
    queue = llama.queue(together=2)
    outcomes = [Outcome() for _ in range(4)]
    tasks = [outcome.task(4 * BLOCK_TOKENS) for outcome in outcomes]
    for task in tasks:
        queue.add(task)
    queue.step()
    for task in (tasks[0], tasks[3]):
        task.cancel()
        task.cancel()
    run(queue)
    assert [[type(error) for error in outcome.errors] for outcome in outcomes] == [[Cancelled], [], [], [Cancelled]]
    assert [len(outcome.caches) for outcome in outcomes] == [0, 1, 1, 0]
    assert len(outcomes[0].blocks) == 1


def test_a_failing_chunk_ends_its_own_task_alone(llama: Bench) -> None:
    recorder, queue = record(llama)
    recorder.fails = lambda calls: calls == 2
    bad, good = Outcome(), Outcome()
    run(queue, bad.task(3 * BLOCK_TOKENS), good.task(2 * BLOCK_TOKENS))
    assert [str(error) for error in bad.errors] == ["no such kernel"]
    assert not bad.caches
    assert not good.errors
    assert len(good.caches) == 1


def test_an_incomplete_prefix_fails_its_task(llama: Bench) -> None:
    parts = dict(llama.export(prompt(64), 3))
    assembly = llama.assemble(parts, 2)
    assembly._missing.add((1, 0))
    outcome = Outcome()
    run(llama.queue(), outcome.task(50, prefix=assembly))
    assert isinstance(outcome.errors[0], EngineError)


@pytest.mark.parametrize("stage", ["block", "ready"])
def test_a_task_whose_owner_raises_is_told_so(llama: Bench, stage: str) -> None:
    outcome = Outcome()
    task = outcome.task(2 * BLOCK_TOKENS)

    def refuse(*_: object) -> None:
        raise ValueError(stage)

    if stage == "block":
        task.on_block = refuse
    else:
        task.on_ready = refuse
    other = Outcome()
    run(llama.queue(), task, other.task(BLOCK_TOKENS))
    assert [str(error) for error in outcome.errors] == [stage]
    assert len(other.caches) == 1


def test_a_task_that_has_ended_keeps_no_kv_alive(llama: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = 1025
    parts = llama.export(prompt(tokens), 64)
    # A record of the log would hold the frames of the error.
    monkeypatch.setattr(prefill._logger, "disabled", True)
    gc.collect()
    before = mx.get_active_memory()
    errors: list[Exception] = []

    def task(**options: Any) -> PrefillTask:
        prefix = llama.assemble(parts, 64)
        return PrefillTask(prompt(tokens), tokens, lambda cache: None, errors.append, prefix=prefix, **options)

    ready, failing, cancelled = task(), task(on_progress=throw), task()
    cancelled.cancel()
    assert mx.get_active_memory() - before > 1_000_000
    run(llama.queue(), ready, failing, cancelled)
    assert len(errors) == 2
    assert memory_comes_back_to(before + 100_000)


def test_the_rate_comes_from_whole_chunks(llama: Bench) -> None:
    queue = llama.queue()
    run(queue, Outcome().task(BLOCK_TOKENS - 1))
    assert queue.rate.tokens_per_second is None
    run(queue, Outcome().task(BLOCK_TOKENS))
    assert queue.rate.tokens_per_second
