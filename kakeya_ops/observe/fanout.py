"""One function on many hosts at once, with one outcome for each: a host that fails takes nothing from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from kakeya_ops.errors import KakeyaError

R = TypeVar("R")

Outcome: TypeAlias = R | KakeyaError
"""What became of one host."""


def run_on(names: Iterable[str], work: Callable[[str], R], parallel: int) -> dict[str, Outcome[R]]:
    """`work` of each name, at most `parallel` at a time, in the order of `names`.

    A `KakeyaError` is that host's outcome; any other exception is raised once all have ended.
    """
    names = tuple(names)
    if not names:
        return {}
    with abandoned_when_interrupted(max(1, min(parallel, len(names)))) as threads:
        futures = {name: threads.submit(work, name) for name in names}
        outcomes: dict[str, Outcome[R]] = {}
        for name, future in futures.items():
            try:
                outcomes[name] = future.result()
            except KakeyaError as error:
                outcomes[name] = error
        return outcomes


@contextmanager
def abandoned_when_interrupted(count: int) -> Iterator[ThreadPoolExecutor]:
    """`count` threads, which are waited for at the end: but not by a person who has pressed Ctrl-C.

    A host that does not answer is given up by the thread that asks it, seconds later. So they must only read.
    """
    threads = ThreadPoolExecutor(count, thread_name_prefix="host")
    try:
        yield threads
        threads.shutdown()
    except KeyboardInterrupt:
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    except BaseException:
        threads.shutdown()
        raise


__all__ = ["Outcome", "abandoned_when_interrupted", "run_on"]
