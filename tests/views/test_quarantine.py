from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from kakeya_ops.serving.quarantine import Held
from kakeya_ops.verify.quarantine import Listing
from kakeya_ops.views.quarantine import quarantine_view, released_line
from serving.findings import EVIDENCE

HELD = Held("allens", 1000.0, replace(EVIDENCE, max_deviation=0.25))
FREED = replace(HELD, released_at=2000.0, release_reason="new memory")


def shown(listing: Listing) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    for renderable in quarantine_view(listing):
        console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_piece_of_the_evidence_has_a_row() -> None:
    text = shown(Listing("head", (HELD,), (FREED,)))
    for words in (
        "allens",
        "r1",
        "epoch 7, started",
        "tokens 128 to 191: block 2, part 1, after 5 equal parts",
        "0.25 standard deviations",
        "none: equal to the bit",
        "head holds 1 node in quarantine",
        "new memory",
    ):
        assert words in text


def test_a_difference_that_is_not_known_and_a_tolerance_are_said() -> None:
    evidence = replace(EVIDENCE, max_deviation=None, tolerance=0.01)
    text = shown(Listing("head", (replace(HELD, evidence=evidence), replace(HELD, node="b")), ()))
    assert "not known" in text
    assert "0.01 standard deviations" in text
    assert "2 nodes" in text


def test_nobody_is_said_too_and_nothing_steers_the_terminal() -> None:
    assert "holds nobody" in shown(Listing("head", (), ()))
    assert "\x1b" not in shown(Listing("he\x1bad", (replace(HELD, node="\x1b[2J"),), ()))
    assert "asked by head again" in released_line(FREED, "head").plain
