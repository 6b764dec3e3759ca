from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bench.acting import KEY, ActingClient
from kakeya_ops.bench import run as module
from kakeya_ops.bench.compare import Comparing
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.report import BenchReport
from kakeya_ops.bench.rounds import Rounds
from kakeya_ops.bench.run import nodes_of, run_bench
from kakeya_ops.bench.samples import Kind
from kakeya_ops.bench.side_by_side import DEFAULTS
from kakeya_ops.bench.targets import parse_expectation


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ActingClient:
    client = ActingClient(time.time)

    class Door:
        def __init__(self, *_: Any) -> None: ...

        def __enter__(self) -> ActingClient:
            return client

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(module, "HeadClient", Door)
    monkeypatch.setattr(Rounds, "jitter", lambda self: ())
    return client


def bench(**changes: Any) -> BenchReport:
    values: dict[str, Any] = {"url": "http://head", "fleet_keys": (KEY,), "lengths": (500, 1500, 4000), "rounds": 1}
    return run_bench(BenchPlan(**(values | changes)), lambda text: None)


def test_each_worker_has_its_rates_its_link_and_its_crossover(client: ActingClient) -> None:
    client.documents["/v1/network/estimates"] = {"peers": [{"node": "worker", "crossover_tokens": 2100}]}
    report = bench()
    assert report.passed
    assert (report.head, report.rounds) == ("head", 1)
    assert [line.length for line in report.local] == [500, 1500, 4000]
    worker, second = report.workers
    assert worker.crossover is not None
    # Locally 2 ms for each token, there a second and 1 ms for each.
    assert (worker.crossover.side, worker.crossover.tokens) == ("at", pytest.approx(1000, rel=0.02))
    assert (worker.predicts, worker.predicted_tokens) == (True, 2100)
    assert worker.prediction_ratio == pytest.approx(2.1, rel=0.02)
    assert not second.predicts
    assert worker.link.network == "cable"
    assert (report.notes, report.bystanders) == ((), ())


def test_expectations_decide(client: ActingClient) -> None:
    assert not bench(expected=(parse_expectation("hit<=0.001"),)).passed
    assert bench(expected=(parse_expectation("hit<=0.9"),)).passed


def test_a_restarted_worker_is_told_and_judged_by_its_new_process(client: ActingClient) -> None:
    def restart(kind: Kind) -> None:
        if client.requests == 20:
            client.epochs["worker"] = 8
            client.computed["worker"] = 0

    client.on_complete = restart
    report = bench()
    worker = report.workers[0]
    assert worker.epoch == 8
    assert len(worker.lines) < 3
    assert report.bystanders == ("worker was restarted; what was measured of it before is left out",)


def test_mlx_lm_runs_beside_the_head_where_it_is_wanted(client: ActingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(plan: BenchPlan, model: Path, comparing: Comparing, deadline: float) -> None:
        assert model == Path("/m")
        client.requests += 3
        comparing.requests += 3
        comparing.notes.append("something")
        for server in (4.0, 2.0):
            comparing._keep(f"longest gap beside 2048 cold tokens, {DEFAULTS}", "s", 0.1, server)

    monkeypatch.setattr(module, "compare_with_mlx_lm", compare)
    report = bench(compared_model=Path("/m"))
    assert [one.ratio for one in report.comparisons] == [pytest.approx((0.025 + 0.05) / 2)]
    assert report.targets[-1].kind.name == "gap"
    assert report.notes == ("something",)
    assert report.bystanders == ()


def test_others_are_seen(client: ActingClient) -> None:
    def interfere(kind: Kind) -> None:
        client.computed["second"] += 10

    client.on_complete = interfere
    client.live = 1
    said = " ".join(bench().bystanders)
    assert "second computed" in said
    assert "under way" in said


def test_without_workers_the_head_alone_is_measured(client: ActingClient) -> None:
    client.workers = []
    report = bench()
    assert report.passed
    assert report.workers == ()
    assert "no worker was measured" in report.notes[0]


def test_only_the_wanted_worker_is_measured(client: ActingClient) -> None:
    report = bench(worker="second")
    assert [worker.node for worker in report.workers] == ["second"]


def test_cards_that_are_none_are_passed_over() -> None:
    assert nodes_of({"nodes": [{"node": "a"}, 5]}) == [{"node": "a"}]
    assert nodes_of({}) == []
