"""Imports without the garbage collector, which would look for garbage among modules for a third of the time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """What is imported within it is never looked through, neither now nor at the end of the process."""
    if not gc.isenabled():  # it rests already, for whoever asked first
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


__all__ = ["importing"]
