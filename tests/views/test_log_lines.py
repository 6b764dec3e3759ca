"""What servers write for programs is shown to people as words, and nothing is lost or obeyed."""

from __future__ import annotations

import json

import pytest

from kakeya_ops.views.log_lines import log_line


def test_an_event_is_a_time_a_level_words_and_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"timestamp": "2026-11-30T23:10:03.5Z", "level": "warning", "event": "a worker is gone", "logger": "x.y"}
    entry |= {"worker": "allens", "reason": "it is silent", "seconds": 2.5, "empty": "", "none": None}
    shown = log_line(json.dumps(entry)).plain
    words = 'warning   a worker is gone          worker=allens  reason="it is silent"  seconds=2.5  empty=""  none=null'
    assert shown.endswith(words)
    assert shown.startswith("2026-1")
    assert "x.y" not in shown


@pytest.mark.parametrize(
    "line", ["", "Traceback (most recent call last):", "{", "[1]", '"event"', '{"other": 1}', "[" * 9999]
)
def test_any_other_line_is_as_it_is(line: str) -> None:
    assert log_line(line).plain == line


def test_nothing_of_a_line_steers_the_terminal() -> None:
    entry = {"timestamp": "\x1b[1m", "level": "\x1b[2m", "event": "\x1b[3m\r", "k\x1b": "\x1b[4m"}
    for shown in (log_line(json.dumps(entry)).plain, log_line("\x1b[5m").plain):
        assert shown.isprintable()
        assert "x1b[" in shown
