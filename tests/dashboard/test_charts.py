"""Charts: no name becomes a key, as many points as there is room for, and no colour but the style sheet's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.dashboard.charts import POINTS, Line, by_second, chart_options, pick


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from keys_of(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from keys_of(inner)


@given(st.lists(st.tuples(st.text(), st.integers(0, 50)), max_size=5))
def test_whatever_the_lines_are_called_the_keys_are_ours(lines: list[tuple[str, int]]) -> None:
    options = chart_options([Line(name, [1.0, None], hue) for name, hue in lines])
    assert set(keys_of(options)) <= set(keys_of(chart_options([Line("", [], 0)])))
    assert [series["name"] for series in options["series"]] == [name for name, _ in lines]


def test_hints_are_drawn_and_never_html() -> None:
    assert chart_options([])["tooltip"]["renderMode"] == "richText"


@given(st.lists(st.none() | st.floats(0, 1e12), max_size=2 * POINTS))
def test_points_are_the_newest_and_end_now(values: list[float | None]) -> None:
    points = pick(values, by_second([1000.0 + second for second in range(len(values))]), 2.0)
    assert len(points) == POINTS
    kept = values[-POINTS:]
    assert points[: POINTS - len(kept)] == [None] * (POINTS - len(kept))
    for point, value in zip(points[POINTS - len(kept) :], kept, strict=True):
        assert (point is None) == (value is None)
        assert point is None or value is None or abs(point - 2 * value) <= 2 * value * 1e-4


def test_while_the_machine_slept_nothing_was_measured() -> None:
    at = [second + (600.0 if second >= 40 else 0.0) for second in range(50)]
    assert by_second(at) == [None] * (POINTS - 10) + [*range(40, 50)]
    assert by_second(at[:45])[:-5] == [None] * (POINTS - 5)


@given(st.floats(0.6, 1.4), st.integers(1, 400))
def test_samples_that_are_not_made_on_the_second_leave_no_gaps(period_seconds: float, count: int) -> None:
    at = [1e9 + number * period_seconds for number in range(count)]
    found = by_second(at)
    known = [index for index in found if index is not None]
    assert found[-1] == count - 1
    assert found == [None] * (POINTS - len(known)) + known
    assert known == sorted(known)
    assert len(known) >= min(POINTS, int((count - 1) * period_seconds))


@given(st.lists(st.floats(0, 1e10), max_size=30))
def test_a_clock_that_was_set_back_is_no_trouble(at: list[float]) -> None:
    assert len(by_second(at)) == POINTS


def test_what_was_never_measured_is_unknown() -> None:
    assert set(pick((), by_second([1.0, 2.0]))) == {None}
