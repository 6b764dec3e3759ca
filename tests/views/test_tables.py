from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from kakeya_ops.verify.report import Check, VerifyReport
from kakeya_ops.views.tables import checks_table, fleet_table, receipt_timeline, verdict_line
from verify.samples import PART, head_card, receipt, worker_card


def text(renderable: RenderableType, width: int = 160) -> str:
    """What a reader without colours sees."""
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


def words(renderable: RenderableType) -> str:
    return " ".join(text(renderable).split())


def report(*verdicts: Any) -> VerifyReport:
    checks = tuple(Check(f"check {index}", verdict, f"{index} of 9") for index, verdict in enumerate(verdicts))
    return VerifyReport("http://head", "head", "allens", checks)


def test_every_check_has_its_verdict_as_a_word() -> None:
    shown = text(checks_table(report("ok", "failed", "unknown"))).splitlines()
    assert [line.split() for line in shown[3:6]] == [
        ["ok", "check", "0", "0", "of", "9"],
        ["failed", "check", "1", "1", "of", "9"],
        ["unknown", "check", "2", "2", "of", "9"],
    ]


def test_the_verdict_names_the_worker_or_counts_the_faults() -> None:
    assert "PASSED: allens" in text(verdict_line(report("ok", "ok")))
    assert "FAILED: 2 of 3" in text(verdict_line(report("ok", "failed", "unknown")))


@pytest.mark.parametrize("width", [24, 40, 200])
def test_a_narrow_table_keeps_every_number(width: int) -> None:
    shown = text(checks_table(VerifyReport("", "", "", (Check("check", "ok", "7" * 30),))), width)
    assert shown.count("7") == 30
    assert max(len(line) for line in shown.splitlines()) <= width


def test_the_fleet_shows_who_is_there_and_in_what_state() -> None:
    cards = [
        worker_card(),
        worker_card() | {"node": "far", "reachable": False, "identity_match": False},
        worker_card() | {"node": "new", "healthy": None, "identity_match": None},
        worker_card() | {"node": "ill", "healthy": False, "prefill_tokens_per_second": None, "pool": None},
    ]
    shown = [" ".join(line.split()) for line in text(fleet_table(head_card(), cards)).splitlines()]
    assert shown[3].startswith("head head answers")
    assert shown[4] == "worker worker healthy equal 1000 tokens/s 4.0 KiB of 1.0 MiB"
    assert shown[5].startswith("far worker unreachable differs")
    assert shown[6].startswith("new worker unknown unknown")
    assert shown[7] == "ill worker not healthy equal not measured unknown"


def test_a_timeline_tells_who_computed_what() -> None:
    shown = words(receipt_timeline(receipt("cold")))
    assert "150 prompt tokens by head" in shown
    assert "remote compute: told so 1.0 ms" in shown
    assert (
        f"128 tokens computed and 0 from the pool of worker; 2 blocks, {2 * PART.nbytes / 1024:.1f} KiB 10.0 ms"
        in shown
    )
    assert "22 tokens by the head itself" in shown
    assert "gain: none 50.0 ms" in shown


def test_a_timeline_of_a_fallback_says_why() -> None:
    document = receipt("local") | {
        "local_pool_tokens": 64,
        "fallback": {"worker": "worker", "reason": "timeout", "message": "worker: silent", "kept_blocks": 0},
    }
    shown = words(receipt_timeline(document))
    assert "own pool 64 tokens" in shown
    assert "fell back worker: worker: silent" in shown
    assert "other node" not in shown


def test_names_from_elsewhere_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in text(fleet_table(head_card(), [worker_card() | {"node": "\x1b[2J"}]))
    assert "[bold]" in text(checks_table(VerifyReport("", "", "", (Check("[bold]c", "ok", "[/]"),))))
