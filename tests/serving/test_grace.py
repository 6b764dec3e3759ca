from __future__ import annotations

import logging
import threading

import pytest

from kakeya_ops.serving.grace import NO_GRACE, Alarms, Grace

SECONDS = 30


class Done:
    """What was done, and on which threads."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.threads: set[threading.Thread] = set()
        self._count = threading.Semaphore(0)

    def act(self, name: str) -> None:
        self.names.append(name)
        self.threads.add(threading.current_thread())
        self._count.release()

    def wait(self, times: int) -> None:
        for _ in range(times):
            assert self._count.acquire(timeout=SECONDS)


def test_it_is_done_later_on_another_thread_that_ends_then() -> None:
    later, done = Alarms(), Done()
    for name in ("once", "again"):
        later(0.01, lambda name=name: done.act(name))
        done.wait(1)
        for thread in done.threads:
            assert thread.daemon
            assert thread is not threading.current_thread()
            thread.join(SECONDS)
            assert not thread.is_alive()
    assert done.names == ["once", "again"]


def test_a_hundred_wait_on_one_thread() -> None:
    later, done, begun = Alarms(), Done(), threading.Event()
    before = set(threading.enumerate())
    later(0, lambda: begun.wait(SECONDS) and None)
    for number in range(100):
        later(0.001 * number, lambda number=number: done.act(str(number)))
    assert [thread.name for thread in set(threading.enumerate()) - before].count("grace") == 1
    begun.set()
    done.wait(100)
    assert done.names == [str(number) for number in range(100)]
    assert len(done.threads) == 1


def test_what_is_sooner_is_done_first_however_late_it_came() -> None:
    later, done = Alarms(), Done()
    later(3600, lambda: done.act("in an hour"))
    later(0, lambda: done.act("now"))
    done.wait(1)
    assert done.names == ["now"]


def test_one_that_fails_is_logged_and_keeps_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    later, done = Alarms(), Done()

    def fail() -> None:
        raise RuntimeError("a broken act")

    with caplog.at_level(logging.ERROR):
        later(0, fail)
        later(0.001, lambda: done.act("next"))
        done.wait(1)
    assert "a broken act" in caplog.text


def test_no_grace_is_none() -> None:
    assert Grace(0.0) == NO_GRACE
