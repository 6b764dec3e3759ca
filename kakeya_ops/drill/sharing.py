"""Several workers drilled at the same time: each kind by whichever of them is free."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

Lane = TypeVar("Lane")
Kind = TypeVar("Kind")
Found = TypeVar("Found")


@dataclass(frozen=True)
class _Broken:
    error: BaseException


def share(lanes: Sequence[Lane], kinds: Sequence[Kind], attempt: Callable[[Lane, Kind], Found]) -> Iterator[Found]:
    """What `attempt` finds of each of `kinds`, as it becomes known; a lane is at one kind at a time.

    With one lane all of it happens in this thread. The first error of any lane is raised; the others begin nothing more
    then, and are not waited for.
    """
    if len(lanes) == 1:
        yield from (attempt(lanes[0], kind) for kind in kinds)
        return
    waiting = deque(kinds)
    found = SimpleQueue[Found | _Broken]()
    for lane in lanes:
        threading.Thread(target=_work, args=(lane, waiting, attempt, found), name="lane", daemon=True).start()
    try:
        for _ in kinds:
            if isinstance(item := found.get(), _Broken):
                raise item.error
            yield item
    finally:
        waiting.clear()


def _work(
    lane: Lane, waiting: deque[Kind], attempt: Callable[[Lane, Kind], Found], found: SimpleQueue[Found | _Broken]
) -> None:
    try:
        while (kind := _next(waiting)) is not None:
            found.put(attempt(lane, kind))
    except BaseException as error:  # noqa: BLE001 - the edge of a thread: whoever waits is told
        found.put(_Broken(error))


def _next(waiting: deque[Kind]) -> Kind | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


__all__ = ["share"]
