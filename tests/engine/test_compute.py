"""The compute thread by itself, with steps of the tests' own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from kakeya_ops.engine import compute
from kakeya_ops.engine.compute import ComputeThread
from kakeya_ops.engine.contract import Heartbeat
from kakeya_ops.errors import EngineDead
from listeners import DEADLINE_SECONDS

Start = Callable[..., ComputeThread]


@pytest.fixture
def start() -> Iterator[Start]:
    """Makes threads, and stops them."""
    threads: list[ComputeThread] = []

    def make(**options: Any) -> ComputeThread:
        threads.append(ComputeThread("test", **options))
        return threads[-1]

    yield make
    for thread in threads:
        thread.close()


class Bench:
    """Something that holds the thread up until it is let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def hold(self) -> None:
        self.reached.set()
        assert self.released.wait(DEADLINE_SECONDS)


def occupy(thread: ComputeThread) -> Bench:
    bench = Bench()
    thread.call(bench.hold)
    assert bench.reached.wait(DEADLINE_SECONDS)
    return bench


def begin(thread: ComputeThread, step: Callable[[], bool], test: Callable[[], None]) -> None:
    """Let `thread` ask `step` for work before it may be idle."""
    bench = occupy(thread)
    thread.begin((step,), test, lambda cause: None)
    bench.released.set()


def broken() -> bool:
    raise RuntimeError("no such kernel")


def test_calls_run_in_order_on_the_thread_and_give_their_results(start: Start) -> None:
    thread = start()
    names: list[str] = []
    calls = [thread.call(lambda n=n: names.append(threading.current_thread().name) or n) for n in range(50)]
    assert [call.result(DEADLINE_SECONDS) for call in calls] == list(range(50))
    assert names == ["test"] * 50


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_what_a_call_raises_is_its_callers(start: Start, error: BaseException) -> None:
    thread = start()

    def fail() -> None:
        raise error

    assert thread.call(fail).exception(DEADLINE_SECONDS) is error
    assert thread.call(lambda: "alive").result(DEADLINE_SECONDS) == "alive"


def test_a_call_that_nobody_waits_for_any_more_is_left_out(start: Start) -> None:
    thread = start()
    bench = occupy(thread)
    ran: list[int] = []
    unwanted, wanted = thread.call(lambda: ran.append(1)), thread.call(lambda: ran.append(2))
    assert unwanted.cancel()
    bench.released.set()
    wanted.result(DEADLINE_SECONDS)
    assert ran == [2]


def test_steps_run_while_there_is_work_then_the_thread_tests_itself(start: Start) -> None:
    thread = start(idle_test_seconds=0.001)
    left = [200]
    left_at_tests: list[int] = []
    tested = threading.Event()

    def step() -> bool:
        left[0] = max(left[0] - 1, 0)
        return left[0] > 0

    def test() -> None:
        left_at_tests.append(left[0])
        tested.set()

    begin(thread, step, test)
    assert tested.wait(DEADLINE_SECONDS)
    assert set(left_at_tests) == {0}


def test_a_busy_thread_has_no_time_to_test_itself(start: Start) -> None:
    thread = start(idle_test_seconds=0.0)
    rounds = [0]
    enough, tested = threading.Event(), threading.Event()

    def step() -> bool:
        rounds[0] += 1
        if rounds[0] == 500:
            enough.set()
        return not enough.is_set()

    def test() -> None:
        assert enough.is_set()
        tested.set()

    begin(thread, step, test)
    assert enough.wait(DEADLINE_SECONDS)
    assert tested.wait(DEADLINE_SECONDS)
    assert thread.heartbeat().alive


def test_every_step_of_a_round_runs_even_if_an_earlier_one_had_work(start: Start) -> None:
    thread = start()
    order: list[str] = []
    done = threading.Event()

    def first() -> bool:
        order.append("first")
        return len(order) < 6

    def second() -> bool:
        order.append("second")
        if len(order) == 6:
            done.set()
        return False

    thread.begin((first, second), lambda: None, lambda cause: None)
    thread.call(lambda: None)
    assert done.wait(DEADLINE_SECONDS)
    assert order[:6] == ["first", "second"] * 3


def test_the_heart_beats_after_each_round_and_shows_what_holds_it_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(compute, "time", SimpleNamespace(monotonic=lambda: now[0]))
    thread = start(idle_test_seconds=DEADLINE_SECONDS)
    stepped = threading.Event()
    bench = occupy(thread)
    thread.begin((lambda: bool(stepped.set()),), lambda: None, lambda cause: None)
    now[0] = 107.0
    assert thread.heartbeat() == Heartbeat(alive=True, age_seconds=7.0, busy=True)
    bench.released.set()
    assert stepped.wait(DEADLINE_SECONDS)
    second = occupy(thread)
    seen = thread.heartbeat()
    second.released.set()
    assert seen == Heartbeat(alive=True, age_seconds=0.0, busy=True)


@pytest.mark.parametrize("place", ["step", "self-test"])
def test_a_failure_ends_the_thread_and_everybody_hears_of_it(start: Start, place: str) -> None:
    thread = start(idle_test_seconds=0.001)
    bench = occupy(thread)
    causes: list[BaseException | None] = []
    ended = threading.Event()
    late: list[Future[None]] = []

    def fail() -> bool:
        # This call comes while the thread is on its way out.
        late.append(thread.call(lambda: None))
        return broken()

    def end(cause: BaseException | None) -> None:
        causes.append(cause)
        ended.set()

    thread.begin((fail,), lambda: None, end) if place == "step" else thread.begin((), fail, end)
    bench.released.set()
    assert ended.wait(DEADLINE_SECONDS)
    assert [str(cause) for cause in causes] == ["no such kernel"]
    assert isinstance(late[0].exception(DEADLINE_SECONDS), EngineDead)
    with pytest.raises(EngineDead):
        thread.call(lambda: None)
    assert not thread.heartbeat().alive
    thread.close()
    assert len(causes) == 1


def test_closing_refuses_what_waits_and_says_why_nothing_failed(start: Start) -> None:
    thread = start()
    causes: list[BaseException | None] = []
    thread.begin((), lambda: None, causes.append)
    thread.call(lambda: None).result(DEADLINE_SECONDS)
    thread.close()
    thread.close()
    assert causes == [None]
    assert not thread.heartbeat().alive
    assert not thread.heartbeat().busy
    with pytest.raises(EngineDead):
        thread.call(lambda: None)


def test_a_thread_may_be_closed_from_within(start: Start) -> None:
    thread = start()
    ended = threading.Event()
    thread.begin((), lambda: None, lambda cause: ended.set())
    thread.call(thread.close).result(DEADLINE_SECONDS)
    assert ended.wait(DEADLINE_SECONDS)


def test_calls_from_many_threads_all_arrive(start: Start) -> None:
    thread = start()
    total = [0]

    def add() -> None:
        total[0] += 1

    def hammer() -> None:
        for _ in range(200):
            thread.call(add)

    callers = [threading.Thread(target=hammer) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert thread.call(lambda: total[0]).result(DEADLINE_SECONDS) == 800
