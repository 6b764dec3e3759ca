from __future__ import annotations

import threading

from kakeya_ops.serving.grace import NO_GRACE, Grace, on_timer


def test_it_is_done_later_on_another_thread() -> None:
    done = threading.Event()
    threads: list[threading.Thread] = []

    def act() -> None:
        threads.append(threading.current_thread())
        done.set()

    on_timer(0.01, act)
    assert done.wait(5)
    assert threads[0].daemon
    assert threads[0] is not threading.current_thread()


def test_no_grace_is_none() -> None:
    assert Grace(0.0) == NO_GRACE
