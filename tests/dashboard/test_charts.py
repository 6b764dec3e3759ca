"""Charts: no name becomes a key, as many points as there is room for, and no colour but the style sheet's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.dashboard.charts import POINTS, Line, chart_options, last_points


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
    points = last_points({"x": values}, "x", 2.0)
    assert len(points) == POINTS
    kept = values[-POINTS:]
    assert points[: POINTS - len(kept)] == [None] * (POINTS - len(kept))
    for point, value in zip(points[POINTS - len(kept) :], kept, strict=True):
        assert (point is None) == (value is None)
        assert point is None or value is None or abs(point - 2 * value) <= 2 * value * 1e-4


def test_what_was_never_measured_is_unknown() -> None:
    assert set(last_points({}, "x")) == {None}
