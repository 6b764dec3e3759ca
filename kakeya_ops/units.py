"""Names for plain values that must not be confused, and the one way sizes, rates and times are written for people."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", str)
BlockHash = NewType("BlockHash", bytes)
"""Chained hash of one block's tokens and of all before it; 32 bytes."""


def render_bytes(count: float) -> str:
    """`count` in the largest binary unit that keeps it at 1 or more: ``'94.4 MiB'``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def render_seconds(seconds: float) -> str:
    """`seconds` with a unit a person reads at once: ``'3.2 ms'``, ``'12.75 s'``."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def render_rate(bytes_per_second: float) -> str:
    """A transfer rate, such as ``'1.2 GiB/s'``."""
    return f"{render_bytes(bytes_per_second)}/s"


__all__ = ["BlockHash", "NodeId", "render_bytes", "render_rate", "render_seconds"]
