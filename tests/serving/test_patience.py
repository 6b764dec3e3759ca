"""When a remote part is given up, on a clock of the test's own."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.patience import STALL_SECONDS, Patience, Seen, Terms, judge

LOCAL_SECONDS = 20.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def terms(
    predicted: float = 10.0, *, blocks: int = 10, local: float = LOCAL_SECONDS, even_slower: bool = False
) -> Terms:
    return Terms(predicted, blocks, lambda done: local * (1 - done / blocks), even_slower)


def test_before_it_is_late_nothing_is_looked_at() -> None:
    assert judge(Seen(0.0), terms()) == 17.0
    assert judge(Seen(16.0, silent_seconds=16.0), terms(local=0.0)) == 1.0


@pytest.mark.parametrize(
    ("seen", "wait"),
    [
        (Seen(17.0, blocks=8), True),  # two more blocks in 4 s, at the pace so far
        (Seen(17.0, blocks=3), False),  # 40 s more, against 14 s alone
        (Seen(24.0, blocks=8, silent_seconds=7.0), False),  # it may be silent as long again; alone 4 s
        (Seen(17.0, blocks=5, silent_seconds=7.0), True),  # or it may go on: 10 s either way
        (Seen(17.0), True),  # nothing came, but the same again is no more than the head would need
        (Seen(26.0), False),
        (Seen(17.0, queue_seconds=5.0), True),
        (Seen(17.0, queue_seconds=30.0), False),
    ],
)
def test_one_that_is_late_is_given_up_when_the_head_would_be_sooner(seen: Seen, wait: bool) -> None:
    assert (judge(seen, terms()) is not None) == wait


@pytest.mark.parametrize("total", [65.0, 130.0])
def test_a_long_prefill_is_waited_for_as_long_as_it_goes_on(total: float) -> None:
    """Predicted far too short; the head would take longer still."""
    slow = terms(5.0, blocks=100, local=2 * total)
    clock = 0.0
    while clock < total:
        blocks = int(clock / total * 100)
        again = judge(Seen(clock, blocks, clock - blocks * total / 100), slow)
        assert again is not None
        clock += again


def test_a_queue_that_was_not_foreseen_is_no_reason_where_the_head_is_busier() -> None:
    crowded = terms(0.5, local=40.0)
    for waited in range(3, 30):
        assert judge(Seen(float(waited), queue_seconds=30.0 - waited), crowded) is not None


def test_a_worker_that_takes_a_job_and_never_begins_is_given_up() -> None:
    idle = terms(0.5, local=6.0)
    assert judge(Seen(5.0), idle) is not None
    assert judge(Seen(8.0), idle) is None


def test_where_a_slower_worker_is_preferred_only_silence_counts() -> None:
    preferred = terms(even_slower=True, local=1.0)
    assert judge(Seen(100.0, blocks=1, silent_seconds=STALL_SECONDS - 1), preferred) is not None
    assert judge(Seen(100.0, queue_seconds=1000.0, silent_seconds=100.0), preferred) is not None
    assert judge(Seen(100.0, blocks=1, silent_seconds=STALL_SECONDS), preferred) is None


@given(st.floats(0, 1e4), st.integers(0, 10), st.floats(0, 1), st.floats(0, 1e3), st.floats(0, 1e3), st.booleans())
def test_a_head_that_would_take_for_ever_waits_for_ever_but_looks_often(
    seconds: float, blocks: int, silent: float, queue: float, predicted: float, even_slower: bool
) -> None:
    seen = Seen(seconds, blocks, silent * seconds, queue)
    again = judge(seen, terms(predicted, local=1e9, even_slower=even_slower))
    if blocks < 10:
        assert again is not None
        assert 0 < again <= max(5.0, predicted * 1.5 + 2.0)


def test_giving_up_ends_the_calls_and_says_so() -> None:
    clock, parent = Clock(), StopFlag()
    patience = Patience(terms(local=0.0), parent, clock)
    with patience.watching():
        assert not patience.stop.stopped
        clock.now += 100
        patience.look()
        assert patience.stop.stopped
    assert patience.gave_up
    assert not parent.stopped


def test_whoever_leaves_is_not_one_that_was_late() -> None:
    clock, parent = Clock(), StopFlag()
    patience = Patience(terms(local=0.0), parent, clock)
    with patience.watching():
        parent.stop()
        assert patience.stop.stopped
        clock.now += 100
        patience.look()
    assert not patience.gave_up
    assert Patience(None, parent).stop.stopped


def test_blocks_and_queues_are_what_it_waits_for() -> None:
    clock = Clock()
    patience = Patience(terms(1.0, local=9.0), StopFlag(), clock)
    clock.now += 8
    patience.queued(4.0)
    patience.look()
    assert not patience.stop.stopped
    for _ in range(9):
        patience.arrived()
    clock.now += 0.5
    patience.look()
    assert not patience.stop.stopped
    clock.now += 3
    patience.look()
    assert patience.gave_up


def test_without_terms_it_waits_for_ever_and_afterwards_no_timer_is_left() -> None:
    before = threading.active_count()
    for agreed in (None, terms()):
        with Patience(agreed, StopFlag()).watching():
            pass
    endless = Patience(None, StopFlag())
    with endless.watching():
        endless.look()
    assert not endless.gave_up
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(5)
    assert threading.active_count() <= before
