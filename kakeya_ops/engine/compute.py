"""The one thread that owns every MLX graph of a node."""

from __future__ import annotations

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

IDLE_TEST_SECONDS = 2.0


class ComputeThread:
    """Runs calls in order of arrival, then one round of steps, for ever; sleeps only when there is nothing to do.

    `self_test` is run after each `IDLE_TEST_SECONDS` without work, so that health never rests on an open port alone.
    An exception out of a step ends the thread: `on_death` is called with it, and every later call raises `EngineDead`.
    """

    def __init__(self, name: str) -> None:
        self._condition = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._steps: tuple[Step, ...] = ()
        self._self_test: Callable[[], None] = lambda: None
        self._on_death: Callable[[Exception], None] = lambda error: None
        self._stopping = False
        self._alive = True
        self._busy = False
        self._last_beat = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(
        self, steps: tuple[Step, ...], self_test: Callable[[], None], on_death: Callable[[Exception], None]
    ) -> None:
        """Set the steps of a round. Called once, when there is a model."""
        with self._condition:
            self._steps, self._self_test, self._on_death = steps, self_test, on_death
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
        """Stop after the present step and wait for it."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._round()
        except Exception as error:
            self._alive = False
            self._on_death(error)
        finally:
            self._alive = False
            self._refuse_calls()
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
            woken = self._condition.wait_for(lambda: bool(self._calls) or self._stopping, IDLE_TEST_SECONDS)
        if not woken:
            self._self_test()
            self._last_beat = time.monotonic()

    def _refuse_calls(self) -> None:
        with self._condition:
            waiting, self._calls = self._calls, deque()
            self._steps, self._stopping = (), True
        for future, _ in waiting:
            future.set_exception(EngineDead("the compute thread has stopped"))


def _answer(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)


__all__ = ["IDLE_TEST_SECONDS", "ComputeThread"]
