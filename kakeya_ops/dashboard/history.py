"""The last minutes as charts, each with its figures in words beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nicegui.elements.echart import EChart

from kakeya_ops.dashboard import words
from kakeya_ops.dashboard.charts import HUES, Line, Numbers, by_second, chart_options, pick
from kakeya_ops.dashboard.elements import Box, Rows, Section, Words, attribute
from kakeya_ops.dashboard.reading import Reading

_MIB = 1024.0 * 1024.0
_HERE, _PEERS, _DECODE = 0, 3, 2
"""The colours of the page for what the head computes, what others do, and what is decoded."""


@dataclass(frozen=True)
class Plot:
    """What one chart shows: its lines in `unit`, and how a value of them is written."""

    lines: Sequence[Line]
    unit: str
    write: Callable[[float | None], str] = words.speed


class History:
    """The section."""

    def __init__(self) -> None:
        section = Section("history", "The last five minutes")
        with section.body, Box("div", "charts"):
            self._figures = {name: _Figure(name, title) for name, title in _TITLES.items()}

    def show(self, reading: Reading) -> None:
        """Show the series of `reading`."""
        for name, plot in plots(reading.series).items():
            self._figures[name].show(plot)


_TITLES = {
    "throughput": "Throughput",
    "first-token": "Time to first token",
    "inter-token": "Time between tokens",
    "pool": "Pool in use",
    "memory": "Memory of the processes",
}


def plots(series: Any) -> dict[str, Plot]:
    """The charts by name, from columns of samples."""
    columns = _Columns(series["values"], by_second(series["at"]))
    nodes = {name: replace(columns, values=values) for name, values in series["nodes"].items()}
    return {
        "throughput": Plot(
            (
                Line("prefill here", columns.pick("prefill_local_tokens_per_second"), _HERE, filled=True),
                Line("prefill from peers", columns.pick("prefill_remote_tokens_per_second"), _PEERS, filled=True),
                Line("decode", columns.pick("decode_tokens_per_second"), _DECODE, filled=True),
            ),
            "tokens/s",
        ),
        "first-token": _latency(columns, "first_token_seconds"),
        "inter-token": _latency(columns, "inter_token_seconds"),
        "pool": _by_node(nodes, "pool_used_bytes"),
        "memory": _by_node(nodes, "footprint_bytes"),
    }


@dataclass(frozen=True)
class _Columns:
    """Columns of samples by name, and which sample is shown at each second."""

    values: Mapping[str, Numbers]
    shown: Sequence[int | None]

    def pick(self, name: str, scale: float = 1.0) -> Numbers:
        return pick(self.values.get(name, ()), self.shown, scale)


def _latency(columns: _Columns, name: str) -> Plot:
    ranks = enumerate((50, 95, 99))
    return Plot([Line(f"p{rank}", columns.pick(f"{name}_p{rank}", 1000), hue) for hue, rank in ranks], "ms")


def _by_node(nodes: Mapping[str, _Columns], name: str) -> Plot:
    scaled = {node: columns.pick(name, 1 / _MIB) for node, columns in nodes.items()}
    known = {node: values for node, values in scaled.items() if any(value is not None for value in values)}
    return Plot([Line(words.plain(node), values, hue) for hue, (node, values) in enumerate(known.items())], "MiB")


class _Figure:
    """A chart, its legend with the newest values, and the same in a sentence."""

    def __init__(self, name: str, title: str) -> None:
        self._title = title
        with Box("figure", "chart", data_chart=name):
            with Box("figcaption"):
                Words("h3", title)
                self._unit = Words("span", "", "note")
            legend = Box("ul", "legend")
            self._chart = EChart(chart_options(()), renderer="svg").classes("plot")
            attribute(self._chart, "role", "img")
        self._legend = Rows(legend, _LegendItem)

    def show(self, plot: Plot) -> None:
        self._unit.say(plot.unit)
        now = [(line.hue, line.name, plot.write(line.newest)) for line in plot.lines]
        self._legend.show(now)
        self._chart.props["options"] = chart_options(plot.lines)
        said = ", ".join(f"{name} {value}" for _, name, value in now if value != words.UNKNOWN)
        attribute(self._chart, "aria-label", f"{self._title} in {plot.unit}, now: {said or 'nothing measured'}")
        self._chart.update()


class _LegendItem:
    def __init__(self) -> None:
        self._item = Box("li")
        with self._item:
            self._swatch = Box("span", "swatch", aria_hidden="true")
            self._name, self._value = Words("span", "", "name"), Words("span", "", "figure")

    def show(self, value: tuple[int, str, str]) -> None:
        hue, name, figure = value
        self._swatch.classes(replace=f"swatch series-{hue % HUES + 1}")
        self._name.say(name)
        self._value.say(figure)

    def delete(self) -> None:
        self._item.delete()


__all__ = ["History", "Plot", "plots"]
