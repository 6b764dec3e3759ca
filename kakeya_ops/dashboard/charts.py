"""Options of ECharts for the page's time series. Colours are CSS variables, so that they follow the system's scheme.

Names are values here and never keys: NiceGUI takes the value of a key that begins with a colon for JavaScript.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

POINTS = 300
"""Seconds that a chart shows."""
HUES = 6
"""The style sheet has the colours ``--series-1`` and so on."""
_NEAR_SECONDS = 0.75
"""Samples are made about once a second; half of that and some lateness are no gap."""

Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    """One series in the colour with this number; `values` are of `POINTS` seconds, oldest first, None where unknown."""

    name: str
    values: Numbers
    hue: int
    filled: bool = False

    @property
    def newest(self) -> float | None:
        """The last value."""
        return self.values[-1] if self.values else None


def by_second(at: Sequence[float]) -> list[int | None]:
    """For each of the `POINTS` seconds that end with the newest of the samples made `at` its sample's index.

    That is the nearest one; None where none was made near it, as while the machine slept.
    """
    return [_nearest(at, at[-1] - ago) for ago in reversed(range(POINTS))] if at else [None] * POINTS


def _nearest(at: Sequence[float], moment: float) -> int | None:
    after = bisect_left(at, moment)
    index = min(range(max(after - 1, 0), min(after + 1, len(at))), key=lambda one: abs(at[one] - moment))
    return index if abs(at[index] - moment) <= _NEAR_SECONDS else None


def pick(column: Numbers, indexes: Sequence[int | None], scale: float = 1.0) -> list[float | None]:
    """The values of `column` at `indexes` in another unit, rounded to five digits; None where either is unknown."""
    values = (None if index is None or not column else column[index] for index in indexes)
    return [None if value is None else float(f"{value * scale:.5g}") for value in values]


def chart_options(lines: Sequence[Line], *, most: float | None = None) -> dict[str, Any]:
    """The options of a chart; its scale ends at `most`, or else where the values do."""
    return {
        "animation": False,
        "textStyle": {"fontFamily": "inherit"},
        "grid": {"left": 44, "right": 8, "top": 8, "bottom": 22},
        "tooltip": _TOOLTIP,
        "xAxis": _TIME_AXIS,
        "yAxis": _VALUE_AXIS | {"max": most},
        # NiceGUI watches what is in lists for changes, point by point.
        "series": tuple(_series(line) for line in lines),
    }


def _series(line: Line) -> dict[str, Any]:
    colour = f"var(--series-{line.hue % HUES + 1})"
    return {
        "type": "line",
        "name": line.name,
        "data": tuple(line.values),
        "showSymbol": False,
        "silent": True,
        "emphasis": {"disabled": True},
        "itemStyle": {"color": colour},
        "lineStyle": {"color": colour, "width": 1.5},
        "areaStyle": {"color": colour, "opacity": 0.12 if line.filled else 0},
    }


_LABEL = {"color": "var(--dim)", "fontSize": 11}
_TIME_AXIS = {
    "type": "category",
    "boundaryGap": False,
    # These are JavaScript, of which no part comes from elsewhere.
    ":data": f"Array.from({{length: {POINTS}}}, (_, i) => `${{{POINTS - 1} - i}} s ago`)",
    "axisLine": {"lineStyle": {"color": "var(--line)"}},
    "axisTick": {"show": False},
    "axisLabel": _LABEL
    | {
        ":interval": f"(i) => ({POINTS - 1} - i) % 60 === 0 && i > 20",
        ":formatter": "(v) => parseInt(v) === 0 ? 'now' : `−${parseInt(v) / 60} min`",
        "alignMaxLabel": "right",
    },
}
_VALUE_AXIS = {
    "type": "value",
    "min": 0,
    "splitNumber": 3,
    "axisLabel": _LABEL,
    "splitLine": {"lineStyle": {"color": "var(--line)"}},
}
_TOOLTIP = {
    "trigger": "axis",
    "renderMode": "richText",  # the other one is HTML
    "confine": True,
    "backgroundColor": "var(--panel)",
    "borderColor": "var(--line)",
    "textStyle": {"color": "var(--text)", "fontSize": 12},
    "axisPointer": {"lineStyle": {"color": "var(--dim)"}},
}

__all__ = ["HUES", "POINTS", "Line", "Numbers", "by_second", "chart_options", "pick"]
