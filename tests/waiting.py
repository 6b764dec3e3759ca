"""Waiting for what other threads and processes do, as long as a crowded machine may take for it."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_SECONDS = 100.0
_POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], object], what: str = "it", seconds: float = WAIT_SECONDS) -> None:
    """Look again and again until `condition` holds; fail when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(_POLL_SECONDS)


__all__ = ["WAIT_SECONDS", "wait_until"]
