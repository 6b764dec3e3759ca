"""What is left of memory: of the machine, of the groups around the process, and what macOS says of it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import psutil
import pytest

from kakeya_ops.serving import memory_room
from kakeya_ops.serving.memory_room import Room, read_room

MIB = 2**20


def write_group(folder: Path, limit: str, current: int, inactive: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    root.mkdir()
    own.write_text("0::/apps/kakeya\n")
    monkeypatch.setattr(memory_room, "_PROC", own)
    monkeypatch.setattr(memory_room, "_CGROUPS", root)
    return root


def test_without_limits_it_is_the_machines_memory(groups: Path) -> None:
    room = read_room()
    assert room.total_bytes == psutil.virtual_memory().total
    assert 0 < room.available_bytes <= room.total_bytes


def test_a_groups_limit_counts_and_copies_of_files_are_free(groups: Path) -> None:
    write_group(groups / "apps/kakeya", str(512 * MIB), 500 * MIB, 20 * MIB)
    assert read_room() == Room(32 * MIB, 512 * MIB)


def test_the_tightest_group_counts_also_one_further_out(groups: Path) -> None:
    write_group(groups / "apps/kakeya", "max", 3 * MIB)
    write_group(groups / "apps", str(256 * MIB), 300 * MIB)
    assert read_room() == Room(0, 256 * MIB)


@pytest.mark.parametrize("text", ["", "nonsense", "12:memory:/old\n"])
def test_what_cannot_be_read_limits_nothing(groups: Path, text: str) -> None:
    memory_room._PROC.write_text(text)
    write_group(groups / "apps/kakeya", "1", 1)
    assert read_room().total_bytes == psutil.virtual_memory().total


class Kernel:
    """``sysctlbyname`` of a machine at one level."""

    def __init__(self, level: int, status: int = 0) -> None:
        self._level, self._status = level, status

    def sysctlbyname(self, name: bytes, value: Any, *rest: Any) -> int:
        assert name == b"kern.memorystatus_vm_pressure_level"
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int))[0] = self._level
        return self._status


@pytest.mark.parametrize(
    ("kernel", "strain"),
    [
        (Kernel(1), "normal"),
        (Kernel(2), "warning"),
        (Kernel(4), "critical"),
        (Kernel(9), "normal"),
        (Kernel(4, -1), "normal"),
        (object(), "normal"),
    ],
)
def test_what_macos_says(kernel: Any, strain: str) -> None:
    assert memory_room._ask_kernel(kernel) == strain
