"""What the tiles say of the counters."""

from __future__ import annotations

from dashboard.hostile import MARKUP, HostileHead
from kakeya_ops.dashboard.totals import describe_counters, describe_totals
from kakeya_ops.front.network import describe_summary
from kakeya_ops.serving.counters import DESCRIPTIONS, CounterName, Counters


def test_a_head_that_has_done_much() -> None:
    figures = describe_totals(HostileHead().summary())
    assert figures["requests"] == ("1,204", "failed: busy 5, engine dead 2", "bad")
    assert figures["reused_share"] == ("58 %", "1,640,022 not computed again", "")
    assert figures["tokens_decoded"] == ("88,412", "21.4 ms apart in the last minute", "")
    assert figures["remote_jobs"] == ("311", "2 failed", "bad")
    assert figures["bytes_received"] == ("41.7 GiB", "in 48.25 s, 3.2 GiB published", "")
    assert figures["fallbacks"] == ("3", f"timeout 2, {MARKUP} 1", "bad")


def test_a_head_that_has_done_nothing() -> None:
    latency = {"inter_token_seconds_p50": None}
    figures = describe_totals(describe_summary(Counters(), []) | {"latency": latency, "live": 0})
    assert figures["requests"] == ("0", "none failed, 0 under way", "")
    assert figures["reused_share"][0] == "–"
    assert figures["fallbacks"] == ("0", "the remote path has held", "")
    assert not any(state for _, _, state in figures.values())


def test_every_counter_of_the_contract_has_its_row() -> None:
    rows = describe_counters(HostileHead().summary())
    assert [row[0] for row in rows] == [name.value for name in CounterName]
    assert [row[3] for row in rows] == [DESCRIPTIONS[name] for name in CounterName]
    found = {row[0]: row for row in rows}
    assert found["remote_jobs"][1:3] == ("311", f"{MARKUP} 211, allens 100")
    assert found["transfer_seconds"][1] == "48.250"
