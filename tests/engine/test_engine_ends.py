"""How requests and engines end: cancelled, closed, dead, or with a listener that raises."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from engine_bench import BLOCK_TOKENS, memory_comes_back_to, prompt
from engine_requests import Gate, ask, assemble, export, settle
from kakeya_ops.engine.contract import DecodeRequest
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled, PrefillJob
from kakeya_ops.errors import EngineDead
from listeners import DEADLINE_SECONDS, Blocks, Listener

OpenEngine = Callable[..., Engine]
LONG = 40 * BLOCK_TOKENS


def kill(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next decode step fail as a broken driver would."""

    def fail(batch: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(engine._decoder, "_advance", fail)


@pytest.mark.parametrize("stage", ["waiting", "prefilling", "decoding", "ended", "at once"])
def test_cancelling_ends_a_request_at_any_stage_and_says_so_once(open_engine: OpenEngine, stage: str) -> None:
    engine = open_engine()
    listener = Listener()
    gate = Gate(engine)
    first = ask(engine, prompt(LONG), 1) if stage == "waiting" else None
    count = 3 if stage == "ended" else 100_000
    ticket = engine.decode(DecodeRequest("r", prompt(LONG), count), listener)
    if stage == "at once":
        ticket.cancel()
    gate.open()
    if stage == "waiting":
        settle(engine)
    elif stage == "prefilling":
        listener.wait_for(lambda: len(listener.progress) > 1)
    elif stage == "decoding":
        listener.wait_for_tokens(2)
    elif stage == "ended":
        listener.wait_for_end()
    ticket.cancel()
    ticket.cancel()
    if stage == "ended":
        settle(engine)
        assert listener.error is None
    else:
        assert isinstance(listener.wait_for_error(), Cancelled)
    if first:
        first.wait_for_end()
    settle(engine)
    assert listener.ends == 1
    assert (engine.queued, engine.decoding) == (0, 0)


def test_a_cancelled_job_stops_at_the_next_chunk(open_engine: OpenEngine) -> None:
    engine = open_engine()
    kept = Blocks()
    tickets: list[Any] = []
    started = threading.Event()

    def keep(block: int, parts: Any) -> None:
        kept.keep(block, parts)
        started.wait(DEADLINE_SECONDS)
        if block == 2:
            tickets[0].cancel()

    tickets.append(engine.prefill(PrefillJob(prompt(LONG), LONG // BLOCK_TOKENS, keep, kept.done)))
    started.set()
    assert isinstance(kept.wait(), Cancelled)
    assert sorted(kept.parts) == [0, 1, 2]
    settle(engine)
    assert len(kept.ends) == 1


def test_two_hundred_cancelled_requests_leave_nothing_behind(open_engine: OpenEngine) -> None:
    engine = open_engine(queue_limit=16, together=4)
    tokens = prompt(12 * BLOCK_TOKENS)
    parts = export(engine, tokens, 6)
    ask(engine, tokens, 2).wait_for_end()
    gc.collect()
    before = mx.get_active_memory()
    tickets = []
    for number in range(200):
        listener = Listener()
        prefix = assemble(engine, parts, 6) if number % 3 == 0 else None
        ticket = engine.decode(DecodeRequest("r", tokens, 100_000), listener, prefix=prefix)
        if number % 4 == 0:
            listener.wait_for_tokens(1)
        ticket.cancel()
        assert isinstance(listener.wait_for_error(), Cancelled)
        tickets.append(ticket)
    settle(engine)
    # Every ticket is still held here, as a careless caller would.
    assert len(tickets) == 200
    assert memory_comes_back_to(before + 50_000)
    assert (engine.queued, engine.decoding, engine.queue_seconds()) == (0, 0, 0.0)


def test_a_listener_that_raises_harms_nobody_else(shared_engine: Engine) -> None:
    tokens = prompt(30)
    expected = ask(shared_engine, tokens, 10).wait_for_end()
    bad = Listener()

    def raise_at_the_second_token(event: Any) -> None:
        bad(event)
        if len(bad.tokens) == 2 or bad.ended:
            raise ValueError("careless")

    gate = Gate(shared_engine)
    shared_engine.decode(DecodeRequest("bad", tokens, 10), raise_at_the_second_token)
    good = ask(shared_engine, tokens, 10)
    gate.open()
    assert good.wait_for_end() == expected
    assert isinstance(bad.wait_for_error(), Cancelled)
    assert len(bad.tokens) == 2
    settle(shared_engine)
    assert (shared_engine.queued, shared_engine.decoding) == (0, 0)


@pytest.mark.parametrize("place", ["block", "done"])
def test_a_job_whose_owner_raises_harms_nobody_else(shared_engine: Engine, place: str) -> None:
    kept = Blocks()

    def fail(*_: object) -> None:
        raise ValueError("careless")

    def done(error: Exception | None) -> None:
        kept.done(error)
        if place == "done":
            fail()

    on_block = fail if place == "block" else kept.keep
    shared_engine.prefill(PrefillJob(prompt(64), 2, on_block, done))
    assert (kept.wait() is None) == (place == "done")
    assert len(ask(shared_engine, prompt(30), 4).wait_for_end()) == 4
    assert len(kept.ends) == 1
    assert shared_engine.queued == 0


def test_an_answer_does_not_depend_on_whether_its_kv_can_be_kept(shared_engine: Engine) -> None:
    tokens = prompt(3 * BLOCK_TOKENS)
    calls: list[int] = []

    def fail(block: int, parts: object) -> None:
        calls.append(block)
        raise ValueError("full")

    listener = ask(shared_engine, tokens, 5, on_block=fail)
    assert listener.wait_for_end() == ask(shared_engine, tokens, 5).wait_for_end()
    assert calls == [0]


def test_a_prefix_that_is_not_whole_fails_its_request_alone(shared_engine: Engine) -> None:
    error = ask(shared_engine, prompt(40), prefix=shared_engine.open_import(1)).wait_for_error()
    assert "never placed" in str(error)
    assert shared_engine.queued == 0
    assert ask(shared_engine, prompt(40)).wait_for_end()


def test_closing_ends_what_runs_what_waits_and_what_only_arrives(open_engine: OpenEngine) -> None:
    engine = open_engine()
    kept = Blocks()
    decoding = ask(engine, prompt(4), 100_000)
    decoding.wait_for_tokens(1)
    waiting = ask(engine, prompt(LONG))
    settle(engine)
    gate = Gate(engine)
    arriving = ask(engine, prompt(LONG))
    engine.prefill(PrefillJob(prompt(64), 1, kept.keep, kept.done))
    closers = [threading.Thread(target=engine.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    gate.open()
    for closer in closers:
        closer.join(DEADLINE_SECONDS)
    assert [type(listener.wait_for_error()) for listener in (decoding, waiting, arriving)] == [EngineDead] * 3
    assert isinstance(kept.wait(), EngineDead)
    assert [decoding.ends, waiting.ends, arriving.ends, len(kept.ends)] == [1, 1, 1, 1]
    assert (engine.queued, engine.decoding) == (0, 0)
    assert not engine.heartbeat().alive
    for use in (lambda: ask(engine, prompt(4)), lambda: engine.open_import(1), lambda: engine.call(lambda: None)):
        with pytest.raises(EngineDead):
            use()
    assert engine.queued == 0


def test_when_the_compute_thread_dies_everybody_hears_of_it(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    deaths: list[str] = []

    def hear() -> None:
        deaths.append("told")
        raise ValueError("careless")

    engine.on_death(hear)
    kept = Blocks()
    decoding = ask(engine, prompt(4), 100_000)
    decoding.wait_for_tokens(1)
    gate = Gate(engine)
    waiting = ask(engine, prompt(LONG))
    engine.prefill(PrefillJob(prompt(64), 1, kept.keep, kept.done))
    kill(engine, monkeypatch)
    gate.open()
    for listener in (decoding, waiting):
        error = listener.wait_for_error()
        assert isinstance(error, EngineDead)
        assert "no such kernel" in str(error)
    assert isinstance(kept.wait(), EngineDead)
    engine.close()
    assert deaths == ["told"]
    engine.on_death(lambda: deaths.append("told late"))
    assert deaths == ["told", "told late"]
    assert [decoding.ends, waiting.ends, len(kept.ends)] == [1, 1, 1]
    assert (engine.queued, engine.decoding, engine.heartbeat().alive) == (0, 0, False)
    with pytest.raises(EngineDead):
        ask(engine, prompt(4))
    assert engine.queued == 0


def test_a_closed_engine_does_not_report_a_death(open_engine: OpenEngine) -> None:
    engine = open_engine()
    deaths: list[str] = []
    engine.on_death(lambda: deaths.append("told"))
    engine.close()
    engine.close()
    engine.on_death(lambda: deaths.append("told"))
    assert deaths == []
