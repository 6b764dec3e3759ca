"""The footprint of this process, and of macOS' answer the field that counts."""

from __future__ import annotations

import ctypes
import os
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from kakeya_ops.serving import process_memory
from kakeya_ops.serving.process_memory import read_footprint

# `phys_footprint` follows a UUID of 16 bytes and seven counters of 8.
FOOTPRINT_OFFSET = 16 + 7 * 8


def test_it_grows_with_what_the_process_holds() -> None:
    before = read_footprint()
    held = bytearray(os.urandom(1)) * (64 * 2**20)
    after = read_footprint()
    assert before is not None
    assert after is not None
    assert after - before > 48 * 2**20
    assert len(held) == 64 * 2**20


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS is asked for its own figure")
def test_elsewhere_it_is_the_resident_set() -> None:
    resident = psutil.Process().memory_info().rss
    assert abs((read_footprint() or 0) - resident) < 32 * 2**20


def test_macos_is_asked_about_this_process_and_its_physical_footprint_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(pid: int, flavor: int, buffer: Any) -> int:
        assert (pid, flavor) == (os.getpid(), 0)
        address = ctypes.addressof(buffer._obj)
        ctypes.c_uint64.from_address(address + FOOTPRINT_OFFSET).value = 13_000_000_000
        return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda name: SimpleNamespace(proc_pid_rusage=answer))
    assert read_footprint() == 13_000_000_000
    refusing = SimpleNamespace(proc_pid_rusage=lambda *_: -1)
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda name: refusing)
    assert read_footprint() is None
    monkeypatch.setattr(process_memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    assert read_footprint() is None
