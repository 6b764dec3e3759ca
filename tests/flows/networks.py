"""Networks of this machine that nobody trusts: addresses of its loopback interface that are no loopback addresses."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def untrusted_network(address: str) -> Iterator[str]:
    """`address` is this machine's for as long as the block lasts; skips where that is not allowed."""
    change = ["ip", "address", "add", f"{address}/32", "dev", "lo"]
    added = subprocess.run(change, capture_output=True)
    if added.returncode:
        pytest.skip(f"lacks root: no address can be added here: {added.stderr.decode().strip()}")
    yield address
    change[2] = "del"
    subprocess.run(change, capture_output=True, check=True)


__all__ = ["untrusted_network"]
