"""Findings as a person reads them."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kakeya_ops.doctor.finding import Finding, Report
from kakeya_ops.views.doctor import report_view

REPORT = Report.of(
    [
        Finding("disk", "allens", "failed", "1.0 GiB are free", "make room on allens"),
        Finding("clock", "allens", "ok", "as this machine's"),
        Finding("sleep", "allens", "warning", "the Mac sleeps \x1b[31mafter 5 min", "sudo pmset -a sleep 0"),
    ],
    ["allens"],
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_finding_and_what_to_do_is_there_in_any_width(width: int) -> None:
    file = io.StringIO()
    for part in report_view(REPORT):
        Console(file=file, width=width, no_color=True).print(part)
    text = " ".join(file.getvalue().split())
    assert "failed disk: free disk: 1.0 GiB are free -> make room on allens" in text
    assert "ok clock: as this machine's" in text
    assert "1 failed, 1 warning, 0 unknown, 1 ok" in text
    assert "\x1b" not in text
