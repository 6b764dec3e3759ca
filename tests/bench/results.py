"""Rounds of measurements, their medians, and the table that is printed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Bound = Literal["at least", "at most"]


@dataclass(frozen=True)
class Measure:
    """One line of the table: `ours` and `theirs` of each round in `unit`; `target` bounds the ratios' median."""

    name: str
    unit: str
    bound: Bound = "at least"
    target: float | None = None
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    combine: Callable[[float, float], float] = lambda ours, theirs: ours / theirs
    result_unit: str = ""

    def add(self, ours: float, theirs: float) -> None:
        """Add a round."""
        self.ours.append(ours)
        self.theirs.append(theirs)

    @property
    def results(self) -> list[float]:
        """The result of each round; both sides of a round were measured one right after the other."""
        return [self.combine(ours, theirs) for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def median(self) -> float:
        """The median of `results`."""
        return statistics.median(self.results)

    @property
    def met(self) -> bool:
        """Whether the median keeps to the target, if there is one."""
        if self.target is None:
            return True
        return self.median >= self.target if self.bound == "at least" else self.median <= self.target

    def to_json(self) -> dict[str, Any]:
        """Every round, for a file."""
        names = ("name", "unit", "bound", "target", "ours", "theirs", "results", "median", "met", "result_unit")
        return {name: getattr(self, name) for name in names}


def render_table(measures: Sequence[Measure]) -> str:
    """The measures that have rounds, one a line."""
    rows = [("measure", "ours", "theirs", "result (range)", "target", "rounds", "")]
    rows += [_row(measure) for measure in measures if measure.ours]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths[:-1]), *lines[1:]])


def _row(measure: Measure) -> tuple[str, ...]:
    ours, theirs = (f"{statistics.median(side):.4g} {measure.unit}" for side in (measure.ours, measure.theirs))
    unit = f" {measure.result_unit}" if measure.result_unit else ""
    result = f"{measure.median:.3f}{unit} ({min(measure.results):.3f}–{max(measure.results):.3f})"
    sign = "≥" if measure.bound == "at least" else "≤"
    target = "" if measure.target is None else f"{sign} {measure.target:g}{unit}"
    verdict = "" if measure.target is None else "met" if measure.met else "MISSED"
    return measure.name, ours, theirs, result, target, str(len(measure.ours)), verdict
