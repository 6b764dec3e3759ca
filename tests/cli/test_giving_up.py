from __future__ import annotations

import signal
import threading

import pytest

from kakeya_ops.cli.giving_up import giving_up


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_heeded_and_raises_nothing(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    cancelled, told = threading.Event(), threading.Event()
    with giving_up(cancelled, lambda text: told.set()):
        signal.raise_signal(number)
        signal.raise_signal(number)
        assert cancelled.is_set()
        assert told.wait(10)
    assert signal.getsignal(number) is before


def test_without_a_signal_nothing_is_given_up() -> None:
    cancelled = threading.Event()
    with giving_up(cancelled, lambda text: None):
        pass
    assert not cancelled.is_set()


def test_another_thread_leaves_signals_alone() -> None:
    before, found = signal.getsignal(signal.SIGINT), []

    def look() -> None:
        with giving_up(threading.Event(), lambda text: None):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]
