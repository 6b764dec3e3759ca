"""Findings in order, counted, and as a document; every topic has its place in the documentation."""

from __future__ import annotations

import json
from pathlib import Path

from kakeya_ops.doctor.catalogue import TOPICS
from kakeya_ops.doctor.finding import Finding, Report

PAGE = Path(__file__).parents[2] / "docs/doctor.md"


def test_findings_stand_by_host_and_topic_and_are_counted() -> None:
    mixed = [
        Finding("clock", "head", "ok", "as here"),
        Finding("disk", "allens", "failed", "full", "make room"),
        Finding("ssh", "allens", "ok", "lets fluffy in"),
    ]
    report = Report.of(mixed, ["head", "allens"])
    assert [(one.host, one.code) for one in report.findings] == [
        ("head", "clock"),
        ("allens", "ssh"),
        ("allens", "disk"),
    ]
    assert report.failed
    document = json.loads(json.dumps(report.to_json()))
    assert document["counts"] == {"ok": 2, "warning": 0, "failed": 1, "unknown": 0}
    assert document["findings"][2]["docs"] == "docs/doctor.md#disk"


def test_every_topic_is_told_in_the_documentation() -> None:
    page = PAGE.read_text()
    for code, topic in TOPICS.items():
        assert f"\n### {code}\n" in page, code
        assert topic.why.split(".")[0] in " ".join(page.split()), code
