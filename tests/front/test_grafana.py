"""The dashboard for Grafana is made from the list of metrics, and the committed one is that."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kakeya_ops.front.grafana import render_dashboard
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.metrics import METRICS, Metric

DASHBOARD: dict[str, Any] = json.loads(render_dashboard())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def test_the_committed_dashboard_is_the_one_that_make_docs_writes() -> None:
    path = Path(__file__).parents[2] / "docs/grafana.json"
    assert path.read_text() == render_dashboard(), "run: make docs"


def test_every_metric_has_one_panel_and_asks_for_it_by_its_scraped_name() -> None:
    assert len(PANELS) == len(METRICS)
    suffixes = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    asked = [re.findall(r"kakeya_\w+", expression) for expression in EXPRESSIONS]
    assert {name for names in asked for name in names} == {one.name + suffixes[one.kind] for one in METRICS}
    for name in CounterName:
        assert any(f"kakeya_{name.value}_total{{" in expression for expression in EXPRESSIONS)


def test_a_new_metric_appears_by_itself() -> None:
    metric = Metric("kakeya_new_bytes", "gauge", "Something new.", "bytes")
    panels = json.loads(render_dashboard([*METRICS, metric]))["panels"]
    [panel] = [one for one in panels if one.get("description") == "Something new."]
    assert panel["fieldConfig"]["defaults"]["unit"] == "bytes"


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_parentheses_and_braces_are_closed() -> None:
    for expression in EXPRESSIONS:
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing)
