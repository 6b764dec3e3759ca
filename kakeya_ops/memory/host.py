"""What is known of a host's memory: values only, with where each came from. Nothing here reads anything.

A fact that could not be had is None, and `HostMemory.gaps` names it with the reason; it is never 0 and never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["read", "table", "pinned", "absent"]
"""Read from the host; reckoned from a public table or rule; said by the inventory; or not known."""
System = Literal["macos", "linux"]
Measure = Literal["footprint", "rss"]
"""What a process was measured by: what macOS charges it with, or its resident set, which leaves out GPU buffers."""

Pressure = Literal["normal", "warning", "critical"]
"""What macOS itself thinks of how short memory is."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of bytes and where it came from; `nbytes` is None exactly when `origin` is ``absent``.

    `source` is a phrase for people: the command or rule, or why there is no figure.
    """

    nbytes: int | None
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Process:
    """A process that takes much memory, or that serves models. `name` is short and printable."""

    pid: int
    name: str
    footprint_bytes: int
    measure: Measure
    is_mlx_server: bool
    is_kakeya: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """A fact, by its name in `HostMemory`, that could not be had, and why."""

    fact: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """The memory of one host.

    `working_set_bytes` is what Metal recommends to keep on the GPU, and `max_buffer_bytes` the longest single buffer;
    Linux has neither, and both are absent there. `wired_limit_bytes` is ``iogpu.wired_limit_mb``: 0 leaves it to macOS.

    `immediate_bytes` is free or only a copy of a file; `optimistic_bytes` is what psutil calls available, for which
    macOS may have to compress or swap. `processes` come with the largest first.
    """

    system: System | None
    total_bytes: Figure
    working_set_bytes: Figure
    max_buffer_bytes: Figure
    wired_limit_bytes: int | None = None
    page_bytes: int | None = None
    immediate_bytes: int | None = None
    optimistic_bytes: int | None = None
    swap_used_bytes: int | None = None
    compressor_bytes: int | None = None
    pressure: Pressure | None = None
    processes: tuple[Process, ...] = ()
    version: str | None = None
    build: str | None = None
    gaps: tuple[Gap, ...] = ()


__all__ = ["Figure", "Gap", "HostMemory", "Measure", "Origin", "Pressure", "Process", "System"]
