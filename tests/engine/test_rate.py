"""The prefill rate: a median of the recent past."""

from __future__ import annotations

import pytest

from kakeya_ops.engine.rate import PrefillRate


def test_nothing_is_claimed_before_anything_was_measured() -> None:
    assert PrefillRate().tokens_per_second is None


def test_one_disturbed_chunk_moves_nothing() -> None:
    rate = PrefillRate()
    for seconds in (0.1, 0.1, 30.0, 0.1):
        rate.observe(64, seconds)
    assert rate.tokens_per_second == pytest.approx(640)


def test_chunks_of_other_lengths_count_by_their_time_for_each_token() -> None:
    rate = PrefillRate()
    for tokens, seconds in ((10, 1.0), (20, 1.0), (40, 1.0)):
        rate.observe(tokens, seconds)
    assert rate.tokens_per_second == pytest.approx(20)


def test_the_distant_past_is_forgotten() -> None:
    rate = PrefillRate()
    for seconds in [1.0] * 40 + [0.5] * 20:
        rate.observe(1, seconds)
    assert rate.tokens_per_second == pytest.approx(2)
