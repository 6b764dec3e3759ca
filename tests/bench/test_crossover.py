from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.bench.crossover import Crossover, Point, compare_crossover, find_crossover


def points(*gains: float) -> list[Point]:
    """At 100, 200, … tokens a worker that is so much earlier."""
    return [Point(100.0 * (number + 1), 10.0, 10.0 - gain) for number, gain in enumerate(gains)]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((-1, 1), Crossover("at", 150.0)),
        ((-3, 1), Crossover("at", 175.0)),
        ((-1, -1, 3), Crossover("at", 225.0)),
        ((1, -1, 1), Crossover("at", 250.0)),  # only what holds from there on counts
        ((0, 1), Crossover("at", 100.0)),
        ((1, 2), Crossover("at most", 100.0)),
        ((1, -1), Crossover("never", 200.0)),
        ((0,), Crossover("never", 100.0)),
    ],
)
def test_the_length_from_which_on_it_helps(gains: tuple[float, ...], expected: Crossover) -> None:
    assert find_crossover(list(reversed(points(*gains)))) == expected


def test_without_points_nothing_is_known() -> None:
    assert find_crossover([]) is None


@given(st.floats(1e-3, 10), st.floats(1e-5, 1e-2), st.floats(1.1, 10))
def test_of_straight_lines_it_is_exact(fixed: float, per_token: float, factor: float) -> None:
    """Local: so much for each token; the worker: a factor less, and something fixed."""
    exact = fixed / (per_token - per_token / factor)
    lengths = [exact * 0.3, exact * 0.8, exact * 1.7]
    found = find_crossover([Point(n, n * per_token, fixed + n * per_token / factor) for n in lengths])
    assert found is not None
    assert (found.side, found.tokens) == ("at", pytest.approx(exact, rel=1e-6))


@pytest.mark.parametrize(
    ("measured", "predicted", "ratio"),
    [
        (Crossover("at", 200.0), 230, 1.15),
        (Crossover("at", 200.0), None, None),
        (Crossover("never", 200.0), 230, None),
        (Crossover("at most", 200.0), 100, None),
        (None, 230, None),
    ],
)
def test_only_lengths_are_compared(measured: Crossover | None, predicted: int | None, ratio: float | None) -> None:
    assert compare_crossover(measured, predicted) == ratio
