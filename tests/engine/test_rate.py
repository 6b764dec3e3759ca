"""The prefill rate: a median of the recent past."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.engine.rate import PrefillCurve, PrefillRate


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


def test_a_curve_is_found_among_disturbed_chunks() -> None:
    rate = PrefillRate()
    real = PrefillCurve(1e-3, 2e-7)
    assert rate.curve is None
    for length in (512, 4096, 16384):
        for position in range(0, length, 64):
            disturbed = 40 if position % 640 == 0 else 1
            rate.observe(64, disturbed * real.seconds(position, position + 64), position)
    assert rate.curve is not None
    for start, end in ((0, 256), (0, 16384), (8192, 16384), (0, 60000)):
        assert rate.curve.seconds(start, end) == pytest.approx(real.seconds(start, end), rel=0.05)


def test_short_prompts_alone_claim_no_bend() -> None:
    rate = PrefillRate()
    for seconds in (0.1, 0.12, 0.09):
        rate.observe(64, seconds)
    assert rate.curve == PrefillCurve(pytest.approx(0.1 / 64), 0.0)


def test_a_machine_that_became_slower_keeps_its_shape() -> None:
    rate = PrefillRate()
    real = PrefillCurve(1e-3, 2e-7)
    for position in range(0, 8192, 64):
        rate.observe(64, real.seconds(position, position + 64), position)
    for position in range(0, 33 * 64, 64):
        rate.observe(64, 3 * real.seconds(position, position + 64), position)
    assert rate.curve is not None
    assert rate.curve.seconds(0, 16384) == pytest.approx(3 * real.seconds(0, 16384), rel=0.1)


@given(st.lists(st.tuples(st.integers(1, 512), st.floats(0, 1e3), st.integers(0, 10**6)), min_size=1, max_size=60))
def test_whatever_was_measured_longer_prompts_take_no_less(seen: list[tuple[int, float, int]]) -> None:
    rate = PrefillRate()
    for tokens, seconds, position in seen:
        rate.observe(tokens, seconds, position)
    curve = rate.curve
    assert curve is not None
    assert 0 <= curve.seconds(0, 64) <= curve.seconds(0, 4096)
    assert curve.seconds(0, 64) <= curve.seconds(1024, 1024 + 64) * (1 + 1e-9)
