"""The engine as its users see it: answers, jobs, the queue, and what is refused."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import Gate, ask, assemble, export
from kakeya_ops.engine.contract import DecodeRequest, PrefillEvent, Sampling, TokenEvent
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.errors import EngineBusy, InputError, ModelDirectoryError
from listeners import DEADLINE_SECONDS, Blocks, Listener
from tiny_models import MakeFamily

OpenEngine = Callable[..., Engine]
LONG = 40 * BLOCK_TOKENS


def test_a_request_is_prefilled_chunk_by_chunk_then_decoded(shared_engine: Engine) -> None:
    listener = ask(shared_engine, prompt(2 * BLOCK_TOKENS + 4), 3)
    listener.wait_for_end()
    assert listener.progress == [BLOCK_TOKENS, 2 * BLOCK_TOKENS, 2 * BLOCK_TOKENS + 3]
    assert [type(event) for event in listener.events] == [PrefillEvent] * 3 + [TokenEvent] * 3
    assert listener.ends == 1


@pytest.mark.parametrize("family", ["llama", "granite_hybrid"])
def test_tokens_after_an_import_are_those_of_a_local_prefill(
    open_engine: OpenEngine, tiny_family: MakeFamily, family: str
) -> None:
    engine = open_engine(tiny_family(family))
    tokens = prompt(4 * BLOCK_TOKENS + 5)
    expected = ask(engine, tokens, 8).wait_for_end()
    parts = export(engine, tokens, 4)
    for blocks in range(1, 5):
        listener = ask(engine, tokens, 8, prefix=assemble(engine, parts, blocks))
        assert listener.wait_for_end() == expected
        assert listener.progress[0] == min((blocks + 1) * BLOCK_TOKENS, len(tokens) - 1)


def test_a_prefix_of_another_prompt_would_be_noticed(shared_engine: Engine) -> None:
    tokens, other = prompt(4 * BLOCK_TOKENS + 5), prompt(4 * BLOCK_TOKENS, seed=1)
    wrong = assemble(shared_engine, export(shared_engine, other, 3), 3)
    listener = ask(shared_engine, tokens, 8, prefix=wrong)
    assert listener.wait_for_end() != ask(shared_engine, tokens, 8).wait_for_end()


def test_what_a_request_computes_is_exported_too_but_nothing_partial(shared_engine: Engine) -> None:
    tokens = prompt(3 * BLOCK_TOKENS + 9)
    kept = Blocks()
    ask(shared_engine, tokens, on_block=kept.keep).wait_for_end()
    expected = export(shared_engine, tokens, 3)
    assert {block: parts[0].checksum for block, parts in kept.parts.items()} == {  # type: ignore[union-attr]
        block: parts[0].checksum  # type: ignore[union-attr]
        for block, parts in expected.items()
    }


def test_a_job_goes_on_from_a_prefix(shared_engine: Engine) -> None:
    tokens = prompt(4 * BLOCK_TOKENS)
    whole = export(shared_engine, tokens, 4)
    rest = Blocks()
    prefix = assemble(shared_engine, whole, 2)
    shared_engine.prefill(PrefillJob(tokens, 4, rest.keep, rest.done, prefix=prefix))
    assert rest.wait() is None
    assert sorted(rest.parts) == [2, 3]
    assert rest.parts[3][0].checksum == whole[3][0].checksum  # type: ignore[union-attr]


def test_seeded_answers_do_not_depend_on_the_company(shared_engine: Engine) -> None:
    sampling = Sampling(temperature=0.9, seed=42)
    tokens = prompt(50)
    expected = ask(shared_engine, tokens, 12, sampling=sampling).wait_for_end()
    others = [ask(shared_engine, prompt(20 + n, seed=n), 20 - n, sampling=Sampling(temperature=1.0)) for n in range(3)]
    assert ask(shared_engine, tokens, 12, sampling=sampling).wait_for_end() == expected
    for other in others:
        other.wait_for_end()


def test_short_prompts_are_not_kept_waiting_by_a_long_one(open_engine: OpenEngine) -> None:
    engine = open_engine(together=2)
    gate = Gate(engine)
    long = ask(engine, prompt(LONG))
    short = ask(engine, prompt(BLOCK_TOKENS))
    gate.open()
    short.wait_for_tokens(1)
    assert len(long.progress) < LONG // BLOCK_TOKENS - 1
    long.wait_for_end()


def test_a_running_answer_goes_on_while_a_prompt_is_prefilled(open_engine: OpenEngine) -> None:
    engine = open_engine()
    running = ask(engine, prompt(8), 400)
    running.wait_for_tokens(1)
    order: list[str] = []
    long = Listener()

    def watch(event: Any) -> None:
        if isinstance(event, PrefillEvent):
            order.append(f"{len(running.tokens)}")
        long(event)

    engine.decode(DecodeRequest("long", prompt(20 * BLOCK_TOKENS), 1), watch)
    long.wait_for_end()
    counts = [int(count) for count in order]
    assert min(later - sooner for sooner, later in itertools.pairwise(counts)) >= 1


def test_the_queue_is_bounded_and_says_how_long_it_is(open_engine: OpenEngine) -> None:
    engine = open_engine(queue_limit=2)
    ask(engine, prompt(LONG)).wait_for_end()
    curve = engine.measured.curve
    assert curve
    gate = Gate(engine)
    running = [ask(engine, prompt(LONG)) for _ in range(2)]
    assert engine.queued == 2
    assert engine.queue_seconds() == pytest.approx(2 * curve.seconds(0, LONG - 1))
    with pytest.raises(EngineBusy) as refused:
        ask(engine, prompt(5))
    assert refused.value.retry_after_seconds == pytest.approx(max(engine.queue_seconds(), 1.0))
    kept = Blocks()
    with pytest.raises(EngineBusy):
        engine.prefill(PrefillJob(prompt(64), 1, kept.keep, kept.done))
    gate.open()
    for listener in running:
        listener.wait_for_end()
    ask(engine, prompt(5)).wait_for_end()
    assert engine.queued == 0


@pytest.mark.parametrize(
    ("tokens", "message"),
    [((), "0"), ((4, 260), "vocabulary"), ((-1, 4), "vocabulary"), ((4, 2**40), "vocabulary")],
)
def test_a_prompt_that_would_make_mlx_read_out_of_bounds_is_refused(
    shared_engine: Engine, tokens: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ask(shared_engine, tokens)
    kept = Blocks()
    with pytest.raises(InputError):
        shared_engine.prefill(PrefillJob(tokens, 1, kept.keep, kept.done))
    assert shared_engine.queued == 0


def test_a_bias_on_a_token_that_does_not_exist_is_refused(shared_engine: Engine) -> None:
    for token in (-1, 260):
        with pytest.raises(InputError, match="vocabulary"):
            ask(shared_engine, prompt(4), sampling=Sampling(logit_bias={token: 1.0}))


def test_a_prefix_that_leaves_nothing_to_compute_is_refused(shared_engine: Engine) -> None:
    tokens = prompt(2 * BLOCK_TOKENS)
    prefix = assemble(shared_engine, export(shared_engine, tokens, 2), 2)
    with pytest.raises(InputError, match="prefix"):
        ask(shared_engine, tokens, prefix=prefix)
    assert len(ask(shared_engine, (*tokens, 65), prefix=prefix).wait_for_end()) == 6


def test_requests_from_many_threads_are_all_answered(shared_engine: Engine) -> None:
    expected = {seed: ask(shared_engine, prompt(20, seed=seed), 5).wait_for_end() for seed in range(6)}
    answers: dict[int, list[int]] = {}

    def request(seed: int) -> None:
        answers[seed] = ask(shared_engine, prompt(20, seed=seed), 5).wait_for_end()

    threads = [threading.Thread(target=request, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert answers == expected


def test_the_heart_beats_and_tells_when_it_is_busy(open_engine: OpenEngine) -> None:
    engine = open_engine()
    gate = Gate(engine)
    beat = engine.heartbeat()
    gate.open()
    assert (beat.alive, beat.busy) == (True, True)
    assert 0 <= beat.age_seconds < DEADLINE_SECONDS


def test_a_directory_that_is_no_model_is_refused_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ModelDirectoryError):
        Engine.load(tmp_path, SETTINGS)
    assert set(threading.enumerate()) <= before


def test_an_engine_knows_its_model(shared_engine: Engine) -> None:
    assert shared_engine.vocabulary_size == 260
    assert shared_engine.context_tokens == 8192
    assert shared_engine.layout is shared_engine.identity.layout
    assert shared_engine.settings == replace(SETTINGS)


def test_memory_is_mlx_s_own_count(shared_engine: Engine) -> None:
    use = shared_engine.memory()
    assert 0 < use.active_bytes <= use.peak_bytes
