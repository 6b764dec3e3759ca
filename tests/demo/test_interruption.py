from __future__ import annotations

import contextlib
import signal

import pytest

from kakeya_ops.demo.interruption import SIGNALS, Interruption


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_no_later_one_does(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in SIGNALS}
    cleaned_up = []

    def work() -> None:
        with Interruption():
            try:
                signal.raise_signal(number)
            finally:
                for again in SIGNALS:
                    signal.raise_signal(again)
                cleaned_up.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned_up
    assert {one: signal.getsignal(one) for one in SIGNALS} == before


@pytest.mark.parametrize("number", SIGNALS)
def test_what_is_held_is_not_interrupted_until_its_end(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with Interruption() as interruption, interruption.held():
            with interruption.held():
                signal.raise_signal(number)
            done.append("inner")
            signal.raise_signal(number)
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interruption_that_a_callback_swallowed_is_insisted_on() -> None:
    with Interruption() as interruption:
        interruption.insist()
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interruption.insist()
