"""Values as a person reads them. Everything becomes text here, and nothing becomes HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kakeya_ops.units import render_bytes, render_rate, render_seconds

UNKNOWN = "–"
_LONGEST = 200


def count(value: float | None) -> str:
    """A whole number with its thousands apart: ``'12,345'``."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """A number of bytes."""
    return UNKNOWN if value is None else render_bytes(value)


def rate(value: float | None) -> str:
    """Bytes per second."""
    return UNKNOWN if value is None else render_rate(value)


def speed(value: float | None) -> str:
    """Tokens per second, with one decimal where it says something."""
    return UNKNOWN if value is None else f"{value:,.{1 if 0 < value < 10 else 0}f}"


def duration(value: float | None) -> str:
    """Seconds."""
    return UNKNOWN if value is None else render_seconds(value)


def share(part: float, whole: float) -> str:
    """A part of a whole in percent; a whole of nothing has no parts."""
    return f"{100 * part / whole:.0f} %" if whole else UNKNOWN


def ago(seconds: float) -> str:
    """How long since: ``'12 s ago'``, ``'3 min ago'``, ``'5 h ago'``."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 5400 else f"{seconds / 3600:.0f} h ago"


def reasons(by_reason: Mapping[str, float]) -> str:
    """Counts by reason, the most frequent first: ``'timeout 3, refused 1'``."""
    ordered = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{plain(reason).replace('_', ' ')} {amount:,.0f}" for reason, amount in ordered)


def plain(value: Any) -> str:
    """Any text on one line, without what controls a screen or turns its direction, and not too long."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value)[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


__all__ = ["UNKNOWN", "ago", "count", "duration", "plain", "rate", "reasons", "share", "size", "speed"]
