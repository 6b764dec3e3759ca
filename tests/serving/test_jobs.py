"""Jobs on a real engine, which a test can hold between two chunks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineBusy, EngineDead, InputError, PoolFull
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.grace import Grace
from kakeya_ops.serving.job import Wish
from serving.job_bench import BLOCKS, Bench, held
from serving.running import DEADLINE_SECONDS, hash_prompt
from tiny_models import MakeFamily


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    engine = Engine.load(tiny_llama, SETTINGS, Admission(queue_limit=4))
    yield engine
    engine.close()


@pytest.fixture
def bench(engine: Engine) -> Iterator[Bench]:
    bench = Bench(engine)
    yield bench
    bench.wait_for_idle()
    assert bench.pool.stats().pinned_bytes == 0


def block_bytes(engine: Engine) -> int:
    return sum(part.nbytes for part in engine.layout.parts)


def test_a_cold_job_delivers_every_block_in_order_and_keeps_them(bench: Bench) -> None:
    wish = bench.wish(1)
    reader = bench.compute(wish)
    assert reader.places == [(block, 0) for block in range(BLOCKS)]
    for part in reader.parts:
        assert part.stored is bench.pool.get(part.key)
    account = reader.subscription.account()
    assert (account.computed_tokens, account.pool_tokens) == (BLOCKS * BLOCK_TOKENS, 0)
    assert account.compute_seconds > 0
    assert bench.count(CounterName.TOKENS_COMPUTED) == BLOCKS * BLOCK_TOKENS


def test_a_repeated_job_comes_from_the_pool(bench: Bench) -> None:
    first = bench.compute(bench.wish(2))
    again = bench.compute(bench.wish(2))
    assert again.parts == first.parts
    assert again.subscription.account().computed_tokens == 0
    assert again.subscription.account().pool_tokens == BLOCKS * BLOCK_TOKENS
    assert bench.count(CounterName.TOKENS_COMPUTED) == BLOCKS * BLOCK_TOKENS


def test_a_longer_job_resumes_from_the_pool_and_gives_the_same_bytes(bench: Bench) -> None:
    bench.compute(bench.wish(3, blocks=5))
    resumed = bench.compute(bench.wish(3))
    assert resumed.subscription.account().pool_tokens == 5 * BLOCK_TOKENS
    bench.pool.clear()
    cold = bench.compute(bench.wish(3))
    assert cold.subscription.account().pool_tokens == 0
    assert [part.stored.checksum for part in resumed.parts] == [part.stored.checksum for part in cold.parts]


def test_blocks_that_the_caller_has_are_not_sent(bench: Bench) -> None:
    reader = bench.compute(bench.wish(4, from_blocks=9))
    assert reader.places == [(block, 0) for block in range(9, BLOCKS)]


@pytest.mark.parametrize("family", ["gemma3", "qwen3_next", "mamba2"])
def test_windows_and_states_send_only_what_the_target_needs(tiny_family: MakeFamily, family: str) -> None:
    engine = Engine.load(tiny_family(family), SETTINGS)
    try:
        bench = Bench(engine)
        cold = bench.compute(bench.wish(5))
        assert cold.places == list(engine.layout.needed(BLOCKS))
        # A shorter prefix may lack its state by now, and is then made again from what there is.
        assert bench.compute(bench.wish(5, blocks=7)).places == list(engine.layout.needed(7))
        warm = bench.compute(bench.wish(5))
        assert warm.subscription.account().computed_tokens == 0
        assert [part.stored.checksum for part in warm.parts] == [part.stored.checksum for part in cold.parts]
    finally:
        engine.close()


def test_blocks_come_while_the_next_are_computed(bench: Bench) -> None:
    reader = bench.open(bench.wish(6), brake=True)
    reader.wait_for_block()
    assert reader.read(lambda: len(reader.parts) == 1).places == [(0, 0)]
    reader.step()
    assert reader.read(lambda: len(reader.parts) == 2).places == [(0, 0), (1, 0)]
    assert reader.subscription.take() is None
    progress = reader.subscription.progress()
    assert (progress.stage, progress.done_blocks, progress.blocks) == ("computing", 2, BLOCKS)
    reader.let_go()
    assert reader.read().error is None


def test_equal_requests_share_one_job(bench: Bench) -> None:
    first = bench.open(bench.wish(7), brake=True)
    first.wait_for_block()
    first.step()
    late = bench.open(bench.wish(7))
    part = bench.open(bench.wish(7, from_blocks=10))
    assert len(bench.book) == 1
    first.let_go()
    assert first.read().parts == late.read().parts
    assert part.read().places == [(10, 0), (11, 0)]
    assert first.subscription.account() == late.subscription.account()
    assert bench.count(CounterName.TOKENS_COMPUTED) == BLOCKS * BLOCK_TOKENS
    assert bench.count(CounterName.JOBS_JOINED) == 2


def test_other_tenants_and_other_lengths_share_nothing(bench: Bench) -> None:
    first = bench.open(bench.wish(8), brake=True)
    first.wait_for_block()
    tokens = prompt(BLOCKS * BLOCK_TOKENS + 1, seed=8)
    other = bench.open(Wish(hash_prompt(bench.engine.identity, tokens, tenant="another"), 0, BLOCKS))
    assert len(bench.book) == 2
    first.let_go()
    assert other.read().error is None
    assert other.subscription.account().pool_tokens == 0
    assert {part.key for part in first.read().parts}.isdisjoint(part.key for part in other.parts)


def test_a_job_that_everybody_leaves_ends_at_the_next_chunk_and_its_blocks_stay(bench: Bench) -> None:
    reader = bench.open(bench.wish(9), brake=True)
    other = bench.open(bench.wish(9))
    reader.wait_for_block()
    reader.step()
    other.subscription.close()
    reader.step()
    reader.subscription.close()
    reader.let_go()
    bench.wait_for_idle()
    assert bench.count(CounterName.JOBS_CANCELLED) == 1
    assert bench.count(CounterName.TOKENS_COMPUTED) == 3 * BLOCK_TOKENS
    again = bench.compute(bench.wish(9))
    assert again.subscription.account().pool_tokens == 3 * BLOCK_TOKENS


def test_one_who_leaves_does_not_stop_the_others(bench: Bench) -> None:
    reader = bench.open(bench.wish(10), brake=True)
    other = bench.open(bench.wish(10))
    reader.wait_for_block()
    reader.subscription.close()
    reader.let_go()
    assert other.read().error is None
    assert len(other.parts) == BLOCKS


def test_a_new_request_does_not_join_a_job_that_was_given_up(bench: Bench) -> None:
    reader = bench.open(bench.wish(11), brake=True)
    reader.wait_for_block()
    reader.subscription.close()
    bench.pool.clear()
    fresh = bench.open(bench.wish(11, from_blocks=BLOCKS - 1))
    assert len(bench.book) == 2
    reader.let_go()
    assert fresh.read().error is None
    assert fresh.places == [(BLOCKS - 1, 0)]
    bench.wait_for_idle()
    assert bench.count(CounterName.JOBS_CANCELLED) == 1


def test_a_reader_that_does_not_read_costs_no_more_than_the_pool_and_stops_nobody(engine: Engine) -> None:
    bench = Bench(engine, budget_bytes=4 * block_bytes(engine))
    reader = bench.open(bench.wish(12), brake=True)
    reader.wait_for_block()
    idle = bench.open(bench.wish(12))
    for count in range(1, BLOCKS):
        reader.read(lambda count=count: len(reader.parts) == count)  # type: ignore[misc]
        assert bench.pool.stats().used_bytes <= bench.pool.budget_bytes
        reader.step()
    reader.let_go()
    assert reader.read().error is None
    assert len(reader.parts) == BLOCKS
    assert isinstance(idle.read().error, PoolFull)
    assert idle.parts == []
    assert bench.pool.stats().pinned_bytes == 0


def test_a_reader_that_does_not_take_what_is_done_stops_no_later_job(engine: Engine) -> None:
    bench = Bench(engine, budget_bytes=4 * block_bytes(engine))
    idle = bench.open(bench.wish(17, blocks=4))
    bench.wait_for_idle()
    assert bench.pool.stats().pinned_bytes == bench.pool.budget_bytes
    reader = bench.open(bench.wish(18, blocks=4)).read()
    assert reader.error is None
    assert len(reader.parts) == 4
    assert isinstance(idle.read().error, PoolFull)
    assert idle.parts == []


def test_a_job_whose_only_reader_is_dropped_ends(engine: Engine) -> None:
    bench = Bench(engine, budget_bytes=4 * block_bytes(engine))
    idle = bench.open(bench.wish(13))
    bench.wait_for_idle()
    assert isinstance(idle.read().error, PoolFull)
    assert bench.count(CounterName.TOKENS_COMPUTED) < BLOCKS * BLOCK_TOKENS
    assert bench.count(CounterName.JOBS_CANCELLED) == 1


def test_a_job_larger_than_the_pool_reaches_a_reader_that_keeps_up(engine: Engine) -> None:
    bench = Bench(engine, budget_bytes=3 * block_bytes(engine))
    reader = bench.open(bench.wish(14), brake=True)
    reader.wait_for_block()
    for count in range(1, BLOCKS):
        reader.read(lambda count=count: len(reader.parts) == count)  # type: ignore[misc]
        reader.step()
    reader.let_go()
    assert reader.read().places == [(block, 0) for block in range(BLOCKS)]
    assert reader.error is None


def test_a_pool_without_room_for_one_block_fails_the_job(engine: Engine) -> None:
    bench = Bench(engine, budget_bytes=block_bytes(engine) - 1)
    reader = bench.open(bench.wish(15)).read()
    assert isinstance(reader.error, PoolFull)
    assert bench.count(CounterName.JOBS_FAILED) == 1


def test_a_late_reader_of_a_job_whose_blocks_have_left_the_pool_gets_a_job_of_its_own(bench: Bench) -> None:
    first = bench.open(bench.wish(16), brake=True)
    first.wait_for_block()
    first.step()
    first.read(lambda: len(first.parts) == 2)
    bench.pool.clear()
    late = bench.open(bench.wish(16))
    assert len(bench.book) == 2
    first.let_go()
    assert late.read().places == [(block, 0) for block in range(BLOCKS)]
    assert first.read().error is None
    assert bench.count(CounterName.JOBS_JOINED) == 0


def test_too_many_jobs_are_refused_with_an_estimate(engine: Engine) -> None:
    bench = Bench(engine, most_jobs=2)
    with held(engine):
        readers = [bench.open(bench.wish(20 + i)) for i in range(2)]
        with pytest.raises(EngineBusy) as caught:
            bench.open(bench.wish(22))
        assert caught.value.retry_after_seconds >= 1.0
        joined = bench.open(bench.wish(20))
        queued = readers[1].subscription.progress()
        assert (queued.stage, queued.done_blocks) == ("queued", 0)
    assert [reader.read().error for reader in (*readers, joined)] == [None, None, None]
    bench.compute(bench.wish(22))


def test_the_engines_own_limit_is_told_at_once_and_leaves_nothing_behind(bench: Bench) -> None:
    with held(bench.engine):
        readers = [bench.open(bench.wish(30 + i)) for i in range(4)]
        with pytest.raises(EngineBusy):
            bench.open(bench.wish(34))
        assert len(bench.book) == 4
    assert [reader.read().error for reader in readers] == [None] * 4
    bench.compute(bench.wish(34))


@pytest.mark.parametrize("blocks", [0, BLOCKS + 1])
def test_blocks_that_the_prompt_does_not_have_are_refused(bench: Bench, blocks: int) -> None:
    with pytest.raises(InputError):
        bench.open(bench.wish(40, blocks=blocks))


def test_tokens_that_the_model_does_not_have_are_refused(bench: Bench) -> None:
    with pytest.raises(InputError, match="vocabulary"):
        bench.open(Wish(hash_prompt(bench.engine.identity, (70_000,) * 40), 0, 2))
    assert len(bench.book) == 0


def test_a_dead_engine_ends_every_job(tiny_llama: Path) -> None:
    engine = Engine.load(tiny_llama, SETTINGS)
    bench = Bench(engine)
    reader = bench.open(bench.wish(50), brake=True)
    reader.wait_for_block()
    closing = threading.Thread(target=engine.close)
    closing.start()
    reader.let_go()
    closing.join(DEADLINE_SECONDS)
    assert isinstance(reader.read().error, EngineDead)
    with pytest.raises(EngineDead):
        bench.open(bench.wish(51))
    assert not isinstance(reader.error, Cancelled)
    reader.subscription.close()
    assert bench.pool.stats().pinned_bytes == 0


def test_a_job_that_everybody_left_is_joined_within_its_grace_and_computed_once(engine: Engine) -> None:
    timers: list[Callable[[], None]] = []
    bench = Bench(engine, grace=Grace(10.0, lambda seconds, act: timers.append(act)))
    wish = bench.wish(40)
    impatient = bench.open(wish, brake=True)
    impatient.wait_for_block()
    for _ in range(5):
        impatient.subscription.close()
        assert bench.book.makes(wish.prompt.hashes[wish.blocks - 1 :])
        resend = bench.open(wish)
        assert resend.subscription.job_id == impatient.subscription.job_id
        resend.subscription.close()
    last = bench.open(wish)
    for expire in timers:  # each leaving's grace, when it is long over
        expire()
    impatient.let_go()
    assert last.read().error is None
    assert len(last.parts) == BLOCKS
    assert bench.count(CounterName.TOKENS_COMPUTED) == BLOCKS * BLOCK_TOKENS
    assert not bench.book.makes(wish.prompt.hashes)


def test_a_job_that_nobody_comes_back_to_ends_with_its_grace(engine: Engine) -> None:
    timers: list[Callable[[], None]] = []
    bench = Bench(engine, grace=Grace(10.0, lambda seconds, act: timers.append(act)))
    reader = bench.open(bench.wish(41), brake=True)
    reader.wait_for_block()
    reader.subscription.close()
    [expire] = timers
    expire()
    reader.let_go()
    bench.wait_for_idle()
    assert bench.count(CounterName.JOBS_CANCELLED) == 1
    assert bench.count(CounterName.TOKENS_COMPUTED) < BLOCKS * BLOCK_TOKENS


def test_in_the_background_a_job_is_begun_only_by_the_idle_and_ends_for_whoever_comes(bench: Bench) -> None:
    quiet = replace(bench.wish(90), background=True)
    with held(bench.engine):
        reader = bench.open(quiet)
        with pytest.raises(EngineBusy):
            bench.open(replace(bench.wish(91), background=True))
        real = bench.open(bench.wish(90))
    assert isinstance(reader.read().error, Cancelled)
    assert real.read().error is None
    assert bench.count(CounterName.JOBS_CANCELLED) == 1
    assert bench.count(CounterName.JOBS_JOINED) == 0
    for one in (reader, real):
        one.subscription.close()
