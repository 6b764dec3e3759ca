from __future__ import annotations

import pytest

from kakeya_ops.units import render_bytes, render_rate, render_seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (94.4 * 2**20, "94.4 MiB"),
        (15.6 * 2**30, "15.6 GiB"),
        (2**50, "1024.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes_are_written_in_the_largest_fitting_unit(count: float, text: str) -> None:
    assert render_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 µs"), (0.000_250, "250 µs"), (0.0032, "3.2 ms"), (1.0, "1.00 s"), (12.75, "12.75 s")],
)
def test_seconds_are_written_with_the_unit_a_person_expects(seconds: float, text: str) -> None:
    assert render_seconds(seconds) == text


def test_a_rate_is_bytes_over_a_second() -> None:
    assert render_rate(1.2 * 2**30) == "1.2 GiB/s"
