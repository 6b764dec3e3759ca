"""How soon the head's API answers while its model is busy with a long prompt."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kakeya_ops.demo.fleet import LOOPBACK

PATHS = ("/v1/network/summary", "/v1/network/nodes", "/v1/network/prefill", "/metrics", "/healthz")
LIMIT_SECONDS = 0.05
_IDLE_ROUNDS = 20
_PAUSE_SECONDS = 0.01


def answer_seconds(port: int, until: Callable[[int], bool]) -> list[float]:
    """The time of each answer to `PATHS` in turn on one connection, until `until`, asked after each round, says so."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    seconds: list[float] = []
    rounds = 0
    try:
        while not until(rounds):
            seconds += [_answer_seconds(connection, path) for path in PATHS]
            rounds += 1
            time.sleep(_PAUSE_SECONDS)
    finally:
        connection.close()
    return seconds


def idle_seconds(port: int) -> list[float]:
    """The same while nothing else is asked."""
    return answer_seconds(port, lambda rounds: rounds >= _IDLE_ROUNDS)


def busy_seconds(port: int, work: Callable[[], object]) -> list[float]:
    """The same while `work` is going on, which is run meanwhile."""
    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(work)
        seconds = answer_seconds(port, lambda rounds: working.done())
        working.result()
    return seconds


def slow_one(seconds: Sequence[float], share: float = 0.95) -> float:
    """What `share` of them are no slower than: of a hundred answers the fifth slowest."""
    return sorted(seconds)[int(len(seconds) * share)]


def _answer_seconds(connection: http.client.HTTPConnection, path: str) -> float:
    began = time.perf_counter()
    connection.request("GET", path)
    reply = connection.getresponse()
    reply.read()
    if reply.status != 200:
        raise RuntimeError(f"{path} answered with status {reply.status}")
    return time.perf_counter() - began
