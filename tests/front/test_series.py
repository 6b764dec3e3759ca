from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.front.series import Latencies, Sample, Series


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_quantiles_are_measurements_in_order(measured: list[float]) -> None:
    latencies = Latencies()
    for seconds in measured:
        latencies.add(1.0, seconds)
    found = latencies.quantiles(1.0)
    values = [found["p50"], found["p95"], found["p99"]]
    assert all(value in measured for value in values)
    assert values == sorted(values)  # type: ignore[type-var]
    assert sum(one <= values[0] for one in measured) * 2 >= len(measured)  # type: ignore[operator]


def test_a_hundred_measurements_have_their_ranks() -> None:
    latencies = Latencies()
    for number in range(100):
        latencies.add(0.0, number / 100)
    assert latencies.quantiles(0.0) == {"p50": 0.49, "p95": 0.94, "p99": 0.98}


def test_of_two_measurements_the_lesser_is_the_median() -> None:
    latencies = Latencies()
    latencies.add(0.0, 2.0)
    latencies.add(0.0, 1.0)
    assert latencies.quantiles(0.0) == {"p50": 1.0, "p95": 2.0, "p99": 2.0}


def test_what_is_old_does_not_count_and_nothing_is_unknown() -> None:
    latencies = Latencies(window_seconds=10)
    latencies.add(0.0, 9.0)
    latencies.add(8.0, 1.0)
    assert latencies.quantiles(10.0)["p99"] == 9.0
    assert latencies.quantiles(10.1)["p99"] == 1.0
    assert latencies.quantiles(19.0) == {"p50": None, "p95": None, "p99": None}


def test_memory_is_bounded() -> None:
    latencies, series = Latencies(), Series(kept=3)
    for number in range(10_000):
        latencies.add(0.0, float(number))
        series.add(Sample(float(number), {"a": 1.0}))
    assert len(latencies._measured) == 8192
    assert [sample.at for sample in series.last()] == [9997.0, 9998.0, 9999.0]
    assert [sample.at for sample in series.last(1)] == [9999.0]
    assert series.last(0) == []


def test_columns_are_equally_long_whatever_came_and_went() -> None:
    series = Series()
    assert (series.newest, series.columns()) == (None, {"at": [], "values": {}, "nodes": {}})
    series.add(Sample(1.0, {"a": 1.0}, {"w": {"pool": 5.0}}))
    series.add(Sample(2.0, {"a": None, "b": 2.0}))
    series.add(Sample(3.0, {"b": 3.0}, {"v": {"pool": 6.0}}))
    assert series.columns() == {
        "at": [1.0, 2.0, 3.0],
        "values": {"a": [1.0, None, None], "b": [None, 2.0, 3.0]},
        "nodes": {"v": {"pool": [None, None, 6.0]}, "w": {"pool": [5.0, None, None]}},
    }
    assert series.newest is not None
    assert series.newest.to_json() == {"at": 3.0, "b": 3.0, "nodes": {"v": {"pool": 6.0}}}
    json.dumps(series.columns(), allow_nan=False)


def test_readers_do_not_disturb_the_writer() -> None:
    series, over = Series(kept=50), threading.Event()

    def read() -> int:
        looks = 0
        while not over.is_set() or not looks:
            columns = series.columns()
            assert len(columns["at"]) == len(columns["values"].get("a", columns["at"]))
            looks += 1
        return looks

    with ThreadPoolExecutor(3) as readers:
        readings = [readers.submit(read) for _ in range(3)]
        for number in range(3000):
            series.add(Sample(float(number), {"a": float(number)}))
        over.set()
        assert all(reading.result(20) for reading in readings)
