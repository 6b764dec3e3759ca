"""A server's log for people: what was written as JSON, a line an event, as words; anything else as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from kakeya_ops.views.printer import visible

_STYLES = {"warning": "yellow", "error": "bold red", "critical": "bold red", "debug": "dim"}
_SAID_FIRST = frozenset({"timestamp", "level", "event", "logger"})
_LEVEL_WIDTH, _EVENT_WIDTH = 8, 24


def log_line(line: str) -> Text:
    """The line for a terminal: local time, level, event, and its fields as ``name=value``."""
    entry = _parse(line)
    if entry is None:
        return Text(visible(line))
    level = str(entry.get("level", "")).lower()
    fields = [f"{name}={_show(value)}" for name, value in entry.items() if name not in _SAID_FIRST]
    said = visible(str(entry["event"])).ljust(_EVENT_WIDTH if fields else 0)
    return Text.assemble(
        (f"{_moment(entry.get('timestamp'))}  ", "dim"),
        (f"{visible(level):<{_LEVEL_WIDTH}}  ", _STYLES.get(level, "")),
        said,
        *((f"  {visible(text)}", "dim") for text in fields),
    )


def _parse(line: str) -> Mapping[str, Any] | None:
    """The event in `line`; None where it is none of a server's."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None


def _show(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _moment(value: object) -> str:
    try:
        return datetime.fromisoformat(str(value)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return visible(str(value or "at no time"))


__all__ = ["log_line"]
