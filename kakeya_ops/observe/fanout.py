"""One function on many hosts at once, with one outcome for each: a host that fails takes nothing from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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
    with ThreadPoolExecutor(max(1, min(parallel, len(names))), thread_name_prefix="host") as threads:
        futures = {name: threads.submit(work, name) for name in names}
    outcomes: dict[str, Outcome[R]] = {}
    for name, future in futures.items():
        try:
            outcomes[name] = future.result()
        except KakeyaError as error:
            outcomes[name] = error
    return outcomes


__all__ = ["Outcome", "run_on"]
