"""The one thread that owns every MLX graph of a node."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import mlx.core as mx

from kakeya_ops.engine.contract import Heartbeat
from kakeya_ops.errors import EngineDead

T = TypeVar("T")
Step = Callable[[], bool]
"""Does one step of its work, and says whether there was any."""

IDLE_TEST_SECONDS = 5.0

_logger = logging.getLogger(__name__)


class ComputeThread:
    """Runs calls in order of arrival, then one round of steps, for ever; sleeps only when there is nothing to do.

    `self_test` is run after each `idle_test_seconds` without work, so that health never rests on an open port alone.
    An exception out of a step or a self-test ends the thread. However it ends, calls that still wait and all later
    ones fail with `EngineDead`, and `on_end` is called on it as its last act, with the exception or, after `close`,
    None.
    """

    def __init__(self, name: str, *, idle_test_seconds: float = IDLE_TEST_SECONDS) -> None:
        self._idle_test_seconds = idle_test_seconds
        self._condition = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._steps: tuple[Step, ...] = ()
        self._self_test: Callable[[], None] = lambda: None
        self._on_end: Callable[[BaseException | None], None] = lambda cause: None
        self._stopping = False
        self._alive = True
        self._busy = False
        self._last_beat = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        # A process that ends while MLX still computes is aborted.
        atexit.register(self.close)

    def begin(
        self, steps: tuple[Step, ...], self_test: Callable[[], None], on_end: Callable[[BaseException | None], None]
    ) -> None:
        """Set the steps of a round. Called once, when there is a model."""
        with self._condition:
            self._steps, self._self_test, self._on_end = steps, self_test, on_end
            self._condition.notify()

    def call(self, work: Callable[[], T]) -> Future[T]:
        """Run `work` on the thread before its next round. Raises `EngineDead` when it has ended."""
        future: Future[T] = Future()
        with self._condition:
            if not self._alive or self._stopping:
                raise EngineDead("the compute thread has stopped")
            self._calls.append((future, work))
            self._condition.notify()
        return future

    def heartbeat(self) -> Heartbeat:
        """The thread's state now; never waits for it."""
        return Heartbeat(self._alive, time.monotonic() - self._last_beat, self._busy)

    def close(self) -> None:
        """Stop after the present step and wait for it, unless called on the thread itself."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            atexit.unregister(self.close)

    def _run(self) -> None:
        cause: BaseException | None = None
        try:
            while not self._stopping:
                self._round()
        except BaseException as error:
            _logger.exception("the compute thread failed")
            cause = error
        try:
            self._refuse_calls()
            self._on_end(cause)
        finally:
            mx.clear_streams()

    def _round(self) -> None:
        self._busy = True
        while self._calls:
            _answer(*self._calls.popleft())
        worked = [step() for step in self._steps]
        self._last_beat = time.monotonic()
        if any(worked):
            return
        self._busy = False
        with self._condition:
            woken = self._condition.wait_for(lambda: bool(self._calls) or self._stopping, self._idle_test_seconds)
        if not woken:
            self._self_test()
            self._last_beat = time.monotonic()

    def _refuse_calls(self) -> None:
        with self._condition:
            self._alive = self._busy = False
            waiting, self._calls = self._calls, deque()
        for future, _ in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(EngineDead("the compute thread has stopped"))


def _answer(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever called is told, and the thread lives on
        future.set_exception(error)


__all__ = ["IDLE_TEST_SECONDS", "ComputeThread"]
