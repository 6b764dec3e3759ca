"""One list of metrics: each role offers just those that are its own, in the form that Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from engine_bench import SETTINGS
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.jobs import JobBook
from kakeya_ops.serving.metrics import METRICS, gauge
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from serving.running import KEY, TENANT, make_cache


def scrape(node: Node) -> dict[str, list[Sample]]:
    """The samples of each metric by its name, as Prometheus' own parser sees them."""
    families = text_string_to_metric_families(node.counters.render().decode())
    return {family.name: family.samples for family in families}


@pytest.fixture(scope="module")
def worker(tiny_llama: Path) -> Iterator[Node]:
    engine = Engine.load(tiny_llama, SETTINGS)
    node = Node(NodeSettings(NodeId("w"), "worker", TENANT, (KEY,)), BlockPool(2**22), engine.identity, engine)
    node.jobs = JobBook(engine, node.pool, node.counters)
    yield node
    engine.close()


def test_no_name_is_given_twice_and_each_follows_the_conventions() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"kakeya_[a-z_]+[a-z]", metric.name)
        assert metric.description.endswith(".")
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
        if metric.kind != "counter" and metric.unit in ("bytes", "seconds"):
            assert metric.name.endswith(f"_{metric.unit}")


def test_every_counter_is_a_metric() -> None:
    counters = {metric.name for metric in METRICS if metric.kind == "counter"}
    assert counters == {f"kakeya_{name.value}" for name in CounterName}


def test_a_cache_offers_what_caches_have() -> None:
    found = scrape(make_cache())
    assert set(found) == {metric.name for metric in METRICS if "cache" in metric.roles}


def test_a_worker_offers_what_workers_have(worker: Node) -> None:
    assert set(scrape(worker)) == {metric.name for metric in METRICS if "worker" in metric.roles}


def test_the_values_are_those_of_the_node(worker: Node) -> None:
    found = scrape(worker)
    card = worker.card()

    def value(name: str) -> float:
        [sample] = found[name]
        return float(sample.value)

    assert value("kakeya_start_time_seconds") == pytest.approx(worker.epoch / 1e9)
    assert value("kakeya_healthy") == 1
    assert value("kakeya_pool_budget_bytes") == card.pool.budget_bytes
    assert value("kakeya_prefill_tokens_per_second") == pytest.approx(card.prefill_tokens_per_second or 0, rel=0.5)
    assert value("kakeya_jobs_running") == 0
    assert value("kakeya_process_footprint_bytes") > 2**20
    [info] = found["kakeya_node_info"]
    assert (info.labels["node"], info.labels["role"], info.labels["run"]) == ("w", "worker", worker.instance)


def test_what_is_unknown_has_no_sample() -> None:
    metric = next(metric for metric in METRICS if metric.name == "kakeya_prefill_tokens_per_second")
    assert gauge(metric, None).samples == []
    assert [sample.value for sample in gauge(metric, 0).samples] == [0.0]
