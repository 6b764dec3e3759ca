"""Which series become which lines, and in what unit."""

from __future__ import annotations

from dashboard.hostile import MARKUP, SCRIPTED, HostileHead
from kakeya_ops.dashboard.charts import POINTS
from kakeya_ops.dashboard.history import plots


def test_every_series_has_its_chart() -> None:
    series = HostileHead().series()
    found = plots(series)
    assert [line.name for line in found["throughput"].lines] == ["prefill here", "prefill from peers", "decode"]
    assert [line.name for line in found["first-token"].lines] == ["p50", "p95", "p99"]
    newest = series["values"]["first_token_seconds_p95"][-1]
    assert found["first-token"].lines[1].newest == float(f"{newest * 1000:.5g}")
    assert {line.name for line in found["pool"].lines} == {"mini", "allens", MARKUP, SCRIPTED}
    assert found["memory"].lines[0].newest == 12 * 1024
    assert all(len(line.values) == POINTS for plot in found.values() for line in plot.lines)


def test_a_head_that_has_just_begun_has_empty_charts() -> None:
    found = plots({"at": [], "values": {}, "nodes": {"mini": {"pool_used_bytes": []}}})
    assert all(line.newest is None for plot in found.values() for line in plot.lines)
    assert found["pool"].lines == []
