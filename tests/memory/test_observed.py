"""Forecast beside observed."""

from __future__ import annotations

import pytest

from kakeya_ops.memory.footprint import Footprint, Term
from kakeya_ops.memory.observed import Observation, compare
from memory.machines import GIB

NEED = Footprint(
    (
        Term("weights", 10 * GIB, "as given", "weights", on_gpu=True),
        Term("process", 1 * GIB, "as given", "fixed", on_gpu=False),
        Term("pool", 4 * GIB, "as given", "pool", on_gpu=True),
    ),
    GIB,
    "a buffer",
)


@pytest.mark.parametrize(
    ("peak", "warned"),
    [(11.0, None), (12.4, None), (13.0, "do not trust"), (9.6, None), (9.0, "before the first full")],
)
def test_more_than_fifteen_percent_apart_is_worth_a_warning(peak: float, warned: str | None) -> None:
    # The pool is reckoned as full as it is: 10 + 1 GiB were forecast.
    peaks = compare(NEED, Observation(peak_bytes=int(peak * GIB), pool_used_bytes=GIB))
    assert [one.name for one in peaks] == ["MLX peak"]
    assert peaks[0].forecast_bytes == 11 * GIB
    warning = peaks[0].warning
    assert (warning is None) if warned is None else (warned in str(warning))


def test_the_process_is_compared_with_everything_and_what_is_not_told_is_left_out() -> None:
    both = compare(NEED, Observation(peak_bytes=10 * GIB, footprint_bytes=22 * GIB))
    assert [(one.name, one.forecast_bytes) for one in both] == [
        ("MLX peak", 10 * GIB),
        ("process footprint", 11 * GIB),
    ]
    assert both[1].off_percent == pytest.approx(-50)
    assert compare(NEED, Observation()) == ()
