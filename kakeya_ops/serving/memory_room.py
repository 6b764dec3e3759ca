"""What this process could still take without harm to the machine: read now, of the system that it runs on."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

Strain = Literal["normal", "warning", "critical"]
"""What macOS itself says of how short memory is; elsewhere always normal."""

_LEVELS: dict[int, Strain] = {2: "warning", 4: "critical"}
_PROC = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Room:
    """`available_bytes` of `total_bytes` that the machine, or a control group around the process, could still give."""

    available_bytes: int
    total_bytes: int
    strain: Strain = "normal"


def read_room() -> Room:
    """What there is now. A few system calls: nothing is started, nothing waits."""
    machine = psutil.virtual_memory()
    rooms = [Room(int(machine.available), int(machine.total)), *_group_rooms(_PROC, _CGROUPS)]
    least = min(rooms, key=lambda room: room.available_bytes)
    return Room(least.available_bytes, min(room.total_bytes for room in rooms), _read_strain())


def _group_rooms(own: Path, root: Path) -> Iterator[Room]:
    """The limit of each control group (version 2) around the process; what only copies files counts as free."""
    try:
        names = [line[3:].strip().lstrip("/") for line in own.read_text().splitlines() if line.startswith("0::")]
    except OSError:
        return
    for name in names:
        folder = root / name
        for group in (folder, *(parent for parent in folder.parents if parent.is_relative_to(root))):
            if (room := _group_room(group)) is not None:
                yield room


def _group_room(group: Path) -> Room | None:
    try:
        limit = int((group / "memory.max").read_text())
        current = int((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = current - int(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return None
    return Room(max(limit - used, 0), limit)


def _read_strain() -> Strain:
    return _ask_kernel(ctypes.CDLL(None)) if sys.platform == "darwin" else "normal"


def _ask_kernel(library: ctypes.CDLL) -> Strain:
    """``kern.memorystatus_vm_pressure_level`` of macOS: 1, 2 or 4."""
    level = ctypes.c_int(0)
    size = ctypes.c_size_t(ctypes.sizeof(level))
    name = b"kern.memorystatus_vm_pressure_level"
    try:
        failed = library.sysctlbyname(name, ctypes.byref(level), ctypes.byref(size), None, ctypes.c_size_t(0))
    except AttributeError:
        return "normal"
    return "normal" if failed else _LEVELS.get(level.value, "normal")


__all__ = ["Room", "Strain", "read_room"]
