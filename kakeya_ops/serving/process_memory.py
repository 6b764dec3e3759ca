"""What the system charges this process with.

On macOS that is the physical footprint, which counts Metal's buffers. The resident set does not: a model of 395 GB by
MLX's own count has been seen with 309 GB of it (https://al-engr.com/glm52-mlx-m3-ultra-recipe.html).
"""

from __future__ import annotations

import ctypes
import os
import sys

import psutil

_RUSAGE_INFO_V0 = 0


class _RusageInfo(ctypes.Structure):
    """``rusage_info_v0`` of macOS' ``sys/resource.h``."""

    _fields_ = (
        ("uuid", ctypes.c_uint8 * 16),
        ("user_time", ctypes.c_uint64),
        ("system_time", ctypes.c_uint64),
        ("package_idle_wakeups", ctypes.c_uint64),
        ("interrupt_wakeups", ctypes.c_uint64),
        ("pageins", ctypes.c_uint64),
        ("wired_size", ctypes.c_uint64),
        ("resident_size", ctypes.c_uint64),
        ("phys_footprint", ctypes.c_uint64),
        ("start_time", ctypes.c_uint64),
        ("exit_time", ctypes.c_uint64),
    )


def read_footprint() -> int | None:
    """The bytes that this process is charged with: on macOS its physical footprint, elsewhere its resident set.

    None where the system does not tell.
    """
    if sys.platform != "darwin":
        return int(psutil.Process().memory_info().rss)
    return _read_physical_footprint(ctypes.CDLL(None))


def _read_physical_footprint(library: ctypes.CDLL) -> int | None:
    usage = _RusageInfo()
    try:
        status = library.proc_pid_rusage(os.getpid(), _RUSAGE_INFO_V0, ctypes.byref(usage))
    except AttributeError:
        return None
    return int(usage.phys_footprint) if status == 0 else None


__all__ = ["read_footprint"]
