from __future__ import annotations

from kakeya_ops.spelling import did_you_mean


def test_only_near_words_are_offered() -> None:
    assert did_you_mean("widnow", ["sink", "window"]) == "; did you mean 'window'?"
    assert did_you_mean("xyz", ["sink", "window"]) == ""


def test_a_word_without_end_is_near_to_nothing() -> None:
    assert did_you_mean("window" * 100_000, ["window"]) == ""
