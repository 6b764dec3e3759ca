from __future__ import annotations

import os

import psutil
import pytest

from bench.soaking import SoakReport
from bench.steadiness import Limits, Reading, Rest, judge, read, rest

MIB = 2**20


def series(*mib: float, descriptors: int = 0, threads: int = 0) -> list[Reading]:
    """Readings of so many MiB; descriptors and threads grow by so many with each."""
    return [Reading(float(n), int(m * MIB), 10 + n * descriptors, 5 + n * threads) for n, m in enumerate(mib)]


def test_what_stays_or_shrinks_is_steady() -> None:
    assert judge("head", series(*[200] * 12)) == []
    assert judge("head", series(*range(300, 200, -8))) == []


def test_one_peak_is_no_growth() -> None:
    assert judge("head", series(*[200] * 10, 900, 200)) == []


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (series(*range(200, 320, 10)), "resident_bytes"),
        (series(*[200] * 12, descriptors=2), "descriptors"),
        (series(*[200] * 12, threads=2), "threads"),
    ],
)
def test_what_grows_is_told(found: list[Reading], what: str) -> None:
    [said] = judge("head", found)
    assert f"head: {what} grew from" in said
    assert "within 11 s" in said


def test_a_large_process_may_grow_by_its_share() -> None:
    grown = series(*range(10_000, 10_120, 10))
    assert judge("head", grown, Limits(memory_share=0.05)) == []
    assert judge("head", grown, Limits(memory_share=0.001)) != []


def test_little_is_too_little_to_tell() -> None:
    assert judge("head", series(1, 1000, 2000)) == []


def test_a_real_process_is_read() -> None:
    process = psutil.Process(os.getpid())
    reading = read(process)
    assert reading.resident_bytes > MIB
    assert reading.threads >= 1
    found = rest(process, 0.05)
    assert found.cpu_share < 2


def test_complaints_are_of_all_kinds() -> None:
    report = SoakReport(wrong=["wrong"], failed=["failed"], touched=["head.log"])
    report.series["head", 1] = series(*range(200, 320, 10))
    report.rests = {"head": Rest(0.2, 4096), "worker": Rest(0.01, 0), "other": Rest(0.01, None)}
    said = report.complaints()
    assert said[:2] == ["wrong", "failed"]
    assert [line.split()[0] for line in said[2:]] == ["head:", "head", "head", "head.log"]
    assert SoakReport().complaints() == []
