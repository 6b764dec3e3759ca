from __future__ import annotations

import io
from dataclasses import replace

from kakeya_ops.drill.catalogue import CATALOGUE
from kakeya_ops.drill.report import DrillReport, Result
from kakeya_ops.views.drill import catalogue_json, catalogue_table, drill_table, drill_verdict, result_line
from kakeya_ops.views.printer import Printer

SAFE = Result("cut-first", "safe", "unreachable", True, 0.25, "worker: broke", "r", 1.5)
WRONG = Result("corrupt-last", "failed", "remote", False, 0.1, "WRONG TOKENS\x1b[2J", "r")
SKIPPED = Result("killed-worker", "skipped", None, None, None, "nothing would start it again")


def report(*results: Result) -> DrillReport:
    return DrillReport("http://h", "head", ("worker",), 0.4, results)


def shown(*renderables: object) -> str:
    out = io.StringIO()
    printer = Printer(color=False, stdout=out)
    printer.out.width = 200
    printer.show(None, *renderables)  # type: ignore[arg-type]
    return out.getvalue()


def test_a_row_tells_verdict_outcome_tokens_and_seconds() -> None:
    text = shown(drill_table(report(SAFE, WRONG, SKIPPED)))
    rows = {line.split()[1]: line.split() for line in text.splitlines() if len(line.split()) > 1}
    assert rows["cut-first"][:6] == ["safe", "cut-first", "unreachable", "equal", "0.25", "s"]
    assert rows["corrupt-last"][:4] == ["failed", "corrupt-last", "remote", "DIFFER"]
    assert rows["killed-worker"][:5] == ["skipped", "killed-worker", "no", "answer", "none"]
    assert "\x1b[2J" not in text


def test_rows_name_the_worker_where_there_are_several() -> None:
    several = replace(report(replace(SAFE, worker="b"), SKIPPED), workers=("a", "b"))
    rows = [line.split() for line in shown(drill_table(several)).splitlines() if line.strip()]
    assert rows[0][:3] == ["verdict", "kind", "worker"]
    assert ["safe", "cut-first", "b", "unreachable"] in [row[:4] for row in rows]


def test_the_verdict_counts_what_was_tried() -> None:
    assert (
        drill_verdict(report(SAFE, SKIPPED)).plain == "PASSED: 1 kinds of fault, every answer the local one, 1 skipped"
    )
    assert drill_verdict(report(SAFE, WRONG)).plain == "FAILED: 1 of 2 kinds of fault did not end as they must"
    assert drill_verdict(report(SKIPPED)).plain.startswith("FAILED")


def test_one_line_while_it_goes_on() -> None:
    assert result_line(SAFE) == "  safe    cut-first: unreachable"
    assert result_line(SKIPPED) == "  skipped killed-worker: nothing would start it again"


def test_the_catalogue_tells_every_kind() -> None:
    text = shown(catalogue_table(CATALOGUE))
    assert all(f" {kind.name} " in text for kind in CATALOGUE)
    assert [kind["name"] for kind in catalogue_json(CATALOGUE)] == [kind.name for kind in CATALOGUE]
