from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya_ops.bench import surroundings
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.report import summarize_link
from kakeya_ops.bench.surroundings import is_loopback, raw_link

HERE = BenchPlan("http://127.0.0.1:8080", ())
LINE = summarize_link({"network": "loopback", "address": "127.0.0.1", "port": 1}, [])


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("http://10.0.0.7:8080", False),
        ("http://head.local", False),
        ("nonsense", False),
    ],
)
def test_loopback_is_told_by_its_address(url: str, here: bool) -> None:
    assert is_loopback(url) is here


def test_a_path_within_this_machine_is_measured() -> None:
    found = raw_link(LINE, HERE, [100_000, 200_000])
    assert found.raw is not None
    assert found.raw > 1e6
    assert "loopback" in found.raw_source


def test_what_the_operator_measured_comes_first() -> None:
    found = raw_link(LINE, replace(HERE, link_bytes_per_second=1e9), [])
    assert (found.raw, found.raw_source) == (1e9, "as told")


@pytest.mark.parametrize(
    ("plan", "address", "payloads"),
    [(HERE, "10.0.0.9", [5]), (BenchPlan("http://10.0.0.7", ()), "127.0.0.1", [5]), (HERE, "127.0.0.1", [])],
)
def test_another_path_is_not_known(plan: BenchPlan, address: str, payloads: list[int]) -> None:
    found = raw_link(replace(LINE, address=address), plan, payloads)
    assert (found.raw, found.raw_source) == (None, "not measured")


def test_why_it_could_not_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(count: int) -> float:
        raise OSError("no sockets")

    monkeypatch.setattr(surroundings, "loopback_bytes_per_second", refuse)
    assert raw_link(LINE, HERE, [5]).raw_source == "not measured: no sockets"
