"""Whether a process keeps to its memory, file descriptors and threads, and rests when there is nothing to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

_FEWEST = 9


@dataclass(frozen=True)
class Reading:
    """What a process took `at` a time of `time.monotonic`."""

    at: float
    resident_bytes: int
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Limits:
    """By how much the last third of a series may lie above its first, and what is rest."""

    memory_share: float = 0.05
    memory_bytes: int = 24 * 2**20
    descriptors: int = 8
    threads: int = 8
    cpu_share_at_rest: float = 0.05
    """Of one core."""


STRICT = Limits()


@dataclass(frozen=True)
class Rest:
    """What a process did while nobody asked anything of it; `written_bytes` is None where the system does not tell."""

    cpu_share: float
    written_bytes: int | None


def read(process: psutil.Process) -> Reading:
    """Raises `psutil.Error` of a process that is gone."""
    with process.oneshot():
        return Reading(time.monotonic(), process.memory_info().rss, process.num_fds(), process.num_threads())


def judge(name: str, series: Sequence[Reading], limits: Limits = STRICT) -> list[str]:
    """What grew in `series`, a sentence each; nothing can be said of a short one."""
    if len(series) < _FEWEST:
        return []
    third = len(series) // 3
    first, last = series[:third], series[-third:]
    allowed = {
        "resident_bytes": max(limits.memory_bytes, limits.memory_share * _level(first, "resident_bytes")),
        "descriptors": limits.descriptors,
        "threads": limits.threads,
    }
    return [
        f"{name}: {what} grew from {_level(first, what):.0f} to {_level(last, what):.0f} within "
        f"{series[-1].at - series[0].at:.0f} s, {most:.0f} more are allowed"
        for what, most in allowed.items()
        if _level(last, what) - _level(first, what) > most
    ]


def rest(process: psutil.Process, seconds: float) -> Rest:
    """Watch `process` for so long."""
    cpu, written, began = _cpu_seconds(process), _written_bytes(process.pid), time.monotonic()
    time.sleep(seconds)
    share = (_cpu_seconds(process) - cpu) / (time.monotonic() - began)
    after = _written_bytes(process.pid)
    return Rest(share, None if written is None or after is None else after - written)


def _level(series: Sequence[Reading], what: str) -> float:
    return float(median(getattr(reading, what) for reading in series))


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _written_bytes(pid: int) -> int | None:
    """What the process has had written to disks so far."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), None)
