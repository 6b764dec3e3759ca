"""Figures as a person reads them, and texts that cannot disturb a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.dashboard import words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (words.count(1234567), "1,234,567"),
        (words.count(None), words.UNKNOWN),
        (words.size(1536), "1.5 KiB"),
        (words.rate(2 * 1024**3), "2.0 GiB/s"),
        (words.rate(None), words.UNKNOWN),
        (words.speed(0), "0"),
        (words.speed(7.25), "7.2"),
        (words.speed(1234.5), "1,234"),
        (words.duration(0.0032), "3.2 ms"),
        (words.duration(None), words.UNKNOWN),
        (words.share(1, 3), "33 %"),
        (words.share(0, 0), words.UNKNOWN),
        (words.ago(-1), "0 s ago"),
        (words.ago(61), "61 s ago"),
        (words.ago(600), "10 min ago"),
        (words.ago(7200), "2 h ago"),
        (words.reasons({"engine_dead": 1, "busy": 3}), "busy 3, engine dead 1"),
        (words.reasons({}), ""),
    ],
)
def test_figures(text: str, wanted: str) -> None:
    assert text == wanted


@given(st.text())
def test_plain_text_is_one_short_line_of_what_can_be_seen(text: str) -> None:
    shown = words.plain(text)
    assert len(shown) <= 201
    assert all(letter.isprintable() for letter in shown)
    if text.isprintable() and len(text) <= 200:
        assert shown == text
