"""Writes ``docs/grafana.json``, a dashboard for Grafana, from the list of metrics: ``make docs``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_ops.serving.metrics import METRICS, Metric

_WIDTH = 8
_HEIGHT = 8
_COLUMNS = 24 // _WIDTH
_SCHEMA = 39
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_UNITS = {"bytes": "bytes", "seconds": "s", "tokens": "short", "tokens/s": "short", "bytes/s": "Bps", "": "short"}
_RATE_UNITS = {"bytes": "Bps", "seconds": "percentunit"}
"""Of what grows by so much a second: seconds a second are the share of the time."""
_QUANTILES = (0.5, 0.95, 0.99)
_SELECTOR = '{instance=~"$instance"}'

Wanted = Callable[[Metric], bool]


@dataclass(frozen=True)
class _Row:
    title: str
    wanted: Wanted


_ROWS: Sequence[_Row] = (
    _Row("Latency of the head's clients", lambda metric: metric.kind == "histogram"),
    _Row("Counters, by the second", lambda metric: metric.kind == "counter"),
    _Row("Peers of the head", lambda metric: metric.kind == "gauge" and "peer" in metric.labels),
    _Row("Nodes", lambda metric: metric.kind == "gauge" and "peer" not in metric.labels),
)


def render_dashboard(metrics: Sequence[Metric] = METRICS) -> str:
    """The dashboard as JSON: each of `metrics` has a panel of its own."""
    return json.dumps(_dashboard(metrics), indent=1) + "\n"


def _dashboard(metrics: Sequence[Metric]) -> dict[str, Any]:
    return {
        "title": "Kakeya",
        "uid": "kakeya-fleet",
        "tags": ["kakeya"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _instances()]},
        "panels": list(_panels(metrics)),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _instances() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Node",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": "label_values(kakeya_node_info, instance)", "refId": "instances"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(metrics: Sequence[Metric]) -> Iterator[dict[str, Any]]:
    top, number = 0, 1
    for row in _ROWS:
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "collapsed": False, "panels": []}
        top, number = top + 1, number + 1
        for index, metric in enumerate(filter(row.wanted, metrics)):
            if index and index % _COLUMNS == 0:
                top += _HEIGHT
            yield _panel(metric, number, {"x": index % _COLUMNS * _WIDTH, "y": top, "w": _WIDTH, "h": _HEIGHT})
            number += 1
        top += _HEIGHT


def _panel(metric: Metric, number: int, place: dict[str, int]) -> dict[str, Any]:
    unit = _RATE_UNITS.get(metric.unit, "short") if metric.kind == "counter" else _UNITS[metric.unit]
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.name.removeprefix("kakeya_").replace("_", " "),
        "description": metric.description,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _DATASOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(_expressions(metric))
        ],
    }


def _expressions(metric: Metric) -> Iterator[tuple[str, str]]:
    """PromQL and the legend of each curve."""
    labels = ("instance", *metric.labels)
    if metric.kind == "histogram":
        rate = f"sum by (le) (rate({metric.name}_bucket{_SELECTOR}[$__rate_interval]))"
        for quantile in _QUANTILES:
            yield f"histogram_quantile({quantile}, {rate})", f"p{quantile * 100:g}"
    elif metric.kind == "counter":
        rate = f"rate({metric.name}_total{_SELECTOR}[$__rate_interval])"
        yield f"sum by ({', '.join(labels)}) ({rate})", _legend(labels)
    else:
        yield f"{metric.name}{_SELECTOR}", _legend(labels)


def _legend(labels: Sequence[str]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


__all__ = ["render_dashboard"]

if __name__ == "__main__":
    sys.stdout.write(render_dashboard())
