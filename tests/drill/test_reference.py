from __future__ import annotations

import re
from pathlib import Path

import pytest

from kakeya_ops.drill.catalogue import CATALOGUE
from kakeya_ops.drill.reference import BEGIN, END, fill, render_catalogue

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/drill.md").read_text()
BESIDE = re.compile(r"^\| [^|]+ \| `(tests/[a-z_/]+\.py)` \| `(\w+)` \|", re.MULTILINE)


def test_the_page_has_the_catalogue_of_the_code() -> None:
    assert fill(PAGE) == PAGE, "run: make docs"
    assert render_catalogue().count("\n") == len(CATALOGUE) + 1


def test_a_page_without_marks_is_no_page() -> None:
    assert fill(f"a\n{BEGIN}\nold\n{END}\nb") == f"a\n{BEGIN}\n{render_catalogue()}\n{END}\nb"
    with pytest.raises(ValueError, match="catalogue"):
        fill("nothing")


def test_what_is_said_to_be_tried_beside_the_drill_is_tried() -> None:
    beside = BESIDE.findall(PAGE)
    assert len(beside) >= 20
    lacking = [(file, test) for file, test in beside if f"def {test}(" not in (ROOT / file).read_text()]
    assert lacking == []


NOT_IN_A_DEMO = {"clear-text", "foreign-certificate", "one-of-several"}
"""It has one worker and no TLS."""


def test_the_report_is_of_every_kind_and_all_that_were_tried_are_safe() -> None:
    report = PAGE[PAGE.index("## A drill") :]
    rows = re.findall(r"^ +(safe|failed|unknown|skipped) +(\S+)", report, re.MULTILINE)
    assert sorted(name for _, name in rows) == sorted(kind.name for kind in CATALOGUE)
    assert {name for verdict, name in rows if verdict != "safe"} == NOT_IN_A_DEMO
    assert {verdict for verdict, _ in rows} == {"safe", "skipped"}
