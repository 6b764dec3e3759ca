"""The counters of a fleet's heads, added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kakeya_ops.status.asking import ApiAnswer
from kakeya_ops.status.value import TOTALS, NodeStatus, Number, Totals


def add_up(nodes: Iterable[NodeStatus], apis: Iterable[ApiAnswer]) -> Totals:
    """The totals of the heads among `nodes` whose cards count; the tables come from `apis`, and None without any."""
    cards = [node.card for node in nodes if node.role == "head" and node.card and not node.card.stale]
    counters: dict[str, Number | None] = {
        name.value: sum(card.counters.get(name.value, 0) for card in cards) if cards else None for name in TOTALS
    }
    summaries = [api.summary for api in apis]
    if not summaries:
        return Totals(counters)
    reasons: dict[str, Number] = {}
    workers: dict[str, dict[str, Number]] = {}
    for summary in summaries:
        _add(reasons, summary.get("fallbacks_by_reason"))
        for worker, values in _mapping(summary.get("by_worker")).items():
            _add(workers.setdefault(worker, {}), values)
    return Totals(counters, reasons, workers)


def _add(sums: dict[str, Number], values: object) -> None:
    for name, value in _mapping(values).items():
        if isinstance(value, int | float) and 0 <= value < 2**63:
            sums[name] = sums.get(name, 0) + value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


__all__ = ["add_up"]
