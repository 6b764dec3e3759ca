from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kakeya_ops.serving.counters import DESCRIPTIONS, CounterName, Counters


def test_every_counter_is_described_and_starts_at_zero() -> None:
    assert set(DESCRIPTIONS) == set(CounterName)
    assert set(Counters().snapshot()) == {name.value for name in CounterName}
    assert not any(Counters().snapshot().values())


def test_sums_by_label() -> None:
    counters = Counters()
    counters.add(CounterName.FALLBACKS, worker="allens", reason="timeout")
    counters.add(CounterName.FALLBACKS, 2, worker="allens", reason="corrupt")
    counters.add(CounterName.FALLBACKS, worker="mini", reason="timeout")
    counters.add(CounterName.BYTES_RECEIVED, 1.5, worker="mini")
    assert counters.value(CounterName.FALLBACKS) == 4
    assert counters.value(CounterName.FALLBACKS, reason="timeout") == 2
    assert counters.value(CounterName.FALLBACKS, worker="allens", reason="corrupt") == 2
    assert counters.by_reason(CounterName.FALLBACKS) == {"corrupt": 2, "timeout": 2}
    assert counters.by_worker() == {"allens": {"fallbacks": 3}, "mini": {"fallbacks": 1, "bytes_received": 1.5}}


def test_a_counter_never_shrinks() -> None:
    with pytest.raises(ValueError, match="shrink"):
        Counters().add(CounterName.REMOTE_JOBS, -1)


def test_a_followed_counter_is_read_where_it_is_kept() -> None:
    counters = Counters()
    evictions = 3
    counters.follow(CounterName.EVICTIONS, lambda: evictions)
    evictions = 5
    assert counters.snapshot()["evictions"] == 5


def test_prometheus_text_has_every_counter_and_hostile_labels_stay_labels() -> None:
    counters = Counters()
    counters.add(CounterName.REMOTE_JOBS, 2, worker='a"b\n}')
    families = {f.name: f for f in text_string_to_metric_families(counters.render().decode())}
    assert set(families) == {f"kakeya_{name.value}" for name in CounterName}
    (sample,) = families["kakeya_remote_jobs"].samples
    assert (sample.name, sample.value, sample.labels["worker"]) == ("kakeya_remote_jobs_total", 2, 'a"b\n}')


@given(st.lists(st.tuples(st.sampled_from(CounterName), st.integers(0, 1000), st.sampled_from(["", "a", "b"]))))
def test_the_whole_is_the_sum_of_its_parts(additions: list[tuple[CounterName, int, str]]) -> None:
    counters = Counters()
    for name, amount, worker in additions:
        counters.add(name, amount, worker=worker)
    for name in CounterName:
        assert counters.value(name) == sum(amount for added, amount, _ in additions if added is name)
        assert counters.value(name) == sum(counters.value(name, worker=worker) for worker in ("", "a", "b"))


def test_many_threads_lose_nothing() -> None:
    counters = Counters()

    def work() -> None:
        for _ in range(1000):
            counters.add(CounterName.REMOTE_JOBS, worker="w")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.value(CounterName.REMOTE_JOBS) == 8000
