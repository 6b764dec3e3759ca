"""Running estimates, on a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.engine.rate import PrefillCurve
from kakeya_ops.serving.estimates import (
    BULK_BYTES,
    DEFAULT_PACKED_SHARE,
    FORGOTTEN_SECONDS,
    HALF_LIFE_SECONDS,
    Expected,
    JobSeen,
    LinkEstimate,
    PackedShare,
    PeerEstimate,
    PeerEstimates,
    RunningMedian,
    read_job,
)
from kakeya_ops.serving.scheduler import DEFAULT_BYTES_PER_SECOND

CURVE = PrefillCurve(1e-3, 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def job(
    *, compute: float = 1.0, queue: float = 0.0, stream: float = 1.0, nbytes: int = 10**6, predicted: float = 0.0
) -> JobSeen:
    return JobSeen(0, 1000, compute, queue, predicted, stream, nbytes)


def test_one_disturbed_value_moves_nothing() -> None:
    median = RunningMedian(Clock())
    assert (median.value, median.age_seconds) == (None, None)
    for value in (1.0, 1.1, 900.0, 1.2, 0.001):
        median.add(value)
    assert median.value == 1.1


def test_the_newer_counts_for_more_and_the_old_for_nothing() -> None:
    clock = Clock()
    median = RunningMedian(clock)
    median.add(1.0)
    median.add(1.0)
    clock.now += 2 * HALF_LIFE_SECONDS
    median.add(5.0)
    assert median.value == 5.0
    clock.now += FORGOTTEN_SECONDS
    assert median.value is None


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1e-3, 1e9)), min_size=1, max_size=30))
def test_a_median_is_something_that_was_seen_lately(history: list[tuple[float, float]]) -> None:
    clock = Clock()
    median = RunningMedian(clock)
    for seconds, value in history:
        clock.now += seconds
        median.add(value)
    assert median.value in [value for _, value in history][-9:]


def test_a_link_that_was_slow_an_hour_ago_is_tried_again() -> None:
    clock = Clock()
    link = LinkEstimate(clock)
    link.observe_rate(1e5)
    assert link.bytes_per_second == pytest.approx(1e5)
    rates = []
    for _ in range(3):
        clock.now += HALF_LIFE_SECONDS
        rates.append(link.bytes_per_second or 0.0)
    assert 1e5 < rates[0] < rates[1] < rates[2] < DEFAULT_BYTES_PER_SECOND
    assert link.age_seconds == 3 * HALF_LIFE_SECONDS
    clock.now += FORGOTTEN_SECONDS
    assert (link.bytes_per_second, link.age_seconds) == (None, None)


def test_a_link_that_was_fast_once_is_not_believed_for_ever() -> None:
    clock = Clock()
    link = LinkEstimate(clock)
    link.observe_rate(1e10)
    clock.now += 3 * HALF_LIFE_SECONDS
    assert (link.bytes_per_second or 0.0) < 1e10 / 10
    link.observe_rate(2e6)
    assert link.bytes_per_second == pytest.approx(2e6)


def test_a_round_trip_is_one_of_the_last_minute() -> None:
    clock = Clock()
    link = LinkEstimate(clock)
    link.observe_rtt(0.5)
    assert link.rtt_seconds == 0.5
    clock.now += 61
    assert link.rtt_seconds is None


def test_a_worker_is_as_slow_as_its_jobs_were_and_not_as_it_says() -> None:
    peer = PeerEstimate(Clock())
    assert peer.expected == Expected()
    for _ in range(3):
        peer.observe(job(compute=3.0, queue=2.0, predicted=1.0, stream=5.2), CURVE)
    expected = peer.expected
    assert expected.compute_factor == pytest.approx(3.0, rel=0.1)
    assert expected.queue_factor == pytest.approx(2.0, rel=0.1)
    assert expected.overhead_seconds == pytest.approx(0.2)


def test_a_fault_of_measurement_is_bounded() -> None:
    peer = PeerEstimate(Clock())
    peer.observe(job(compute=1e6, stream=1e6), CURVE)
    assert peer.expected.compute_factor == 4.0
    peer = PeerEstimate(Clock())
    peer.observe(job(compute=0.0, stream=0.0), CURVE)
    assert peer.expected.compute_factor == 0.25


def test_experience_with_a_worker_is_forgotten() -> None:
    clock = Clock()
    peers = PeerEstimates(clock)
    peers.of("a").observe(job(compute=4.0, stream=4.0), CURVE)
    assert peers.of("a").expected.compute_factor > 3
    assert peers.of("b").expected == Expected()
    clock.now += FORGOTTEN_SECONDS
    assert peers.of("a").expected == Expected()


def test_only_a_stream_that_waited_for_the_link_tells_its_rate() -> None:
    assert job(compute=1.0, stream=1.1).link_bytes_per_second is None
    slow = job(compute=1.0, queue=3.0, stream=13.0)
    assert slow.link_bytes_per_second == pytest.approx(1e5)
    assert job(compute=0.001, stream=0.05).link_bytes_per_second is None  # too short to tell
    assert job(compute=1.0, queue=1.0, stream=2.0).least_bytes_per_second == pytest.approx(1e6)


def test_what_a_receipt_tells() -> None:
    receipt = {
        "pool_tokens": 64,
        "computed_tokens": 128,
        "compute_seconds": 2.0,
        "queue_seconds": 0.5,
        "payload_bytes": 300,
    }
    assert read_job(receipt, 3.0, 1.0) == JobSeen(64, 192, 2.0, 0.5, 1.0, 3.0, 300)


def test_what_is_left_of_packed_kv_is_measured() -> None:
    share = PackedShare(Clock())
    assert share.value == DEFAULT_PACKED_SHARE
    share.observe(0.69)
    assert share.value == 0.69


def test_short_transfers_do_not_make_a_link_a_slow_one() -> None:
    estimate = LinkEstimate(lambda: 0.0)
    estimate.observe_rate(20e6, 96 * 1024)
    assert (estimate.bytes_per_second, estimate.bulk_bytes_per_second) == (pytest.approx(20e6), None)
    estimate.observe_rate(90e6, BULK_BYTES)
    estimate.observe_rate(20e6, BULK_BYTES - 1)
    assert estimate.bulk_bytes_per_second == 90e6
