"""What is believed of links and workers, from what was seen of them lately. No clock but the one that is given.

Every estimate is a median, so that one disturbed measurement moves nothing, and every one ages: a link that was slow an
hour ago is tried again, and one that was fast once is not believed for ever.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kakeya_ops.engine.rate import PrefillCurve
from kakeya_ops.serving.scheduler import DEFAULT_BYTES_PER_SECOND

Clock = Callable[[], float]
"""Monotonic seconds."""

DEFAULT_PACKED_SHARE = 0.85
"""What packing leaves of float32; it leaves less of bfloat16."""
KEPT = 9
HALF_LIFE_SECONDS = 900.0
"""In this time a measurement loses half of its weight: against newer ones, and against what is assumed without any."""
FORGOTTEN_SECONDS = 3600.0
"""Older measurements are none."""
_RTT_FORGOTTEN_SECONDS = 60.0
BULK_BYTES = 1024 * 1024
"""Shorter transfers make a fast link look slow."""
_FACTOR_LIMIT = 4.0
_SLACK_SECONDS = 0.05
"""Differences of so little say nothing of a factor."""
_BOUND_BY_LINK = 1.3
"""A stream that took so many times as long as its computation was held up by the link."""


class RunningMedian:
    """The median of the last `kept` values, the newer the heavier. Not thread-safe."""

    def __init__(self, clock: Clock, *, kept: int = KEPT, forgotten_seconds: float = FORGOTTEN_SECONDS) -> None:
        self._clock = clock
        self._forgotten_seconds = forgotten_seconds
        self._seen: deque[tuple[float, float]] = deque(maxlen=kept)

    def add(self, value: float) -> None:
        """Take `value` as seen now."""
        self._seen.append((self._clock(), value))

    @property
    def value(self) -> float | None:
        """The weighted median, None when nothing is remembered."""
        weighted = sorted((value, self._weight(at)) for at, value in self._remembered())
        half, reached = sum(weight for _, weight in weighted) / 2, 0.0
        for value, weight in weighted:
            reached += weight
            if reached >= half:
                return value
        return None

    @property
    def age_seconds(self) -> float | None:
        """Since the newest value that is remembered."""
        return min((self._clock() - at for at, _ in self._remembered()), default=None)

    def _remembered(self) -> list[tuple[float, float]]:
        now = self._clock()
        return [(at, value) for at, value in self._seen if now - at < self._forgotten_seconds]

    def _weight(self, at: float) -> float:
        return float(0.5 ** ((self._clock() - at) / HALF_LIFE_SECONDS))


class LinkEstimate:
    """One way to a node: its round trip, and the rate of transfers over it. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._rtts = RunningMedian(clock, forgotten_seconds=_RTT_FORGOTTEN_SECONDS)
        self._rates = RunningMedian(clock)
        self._bulk_rates = RunningMedian(clock)

    def observe_rtt(self, seconds: float) -> None:
        """Record a round trip."""
        with self._lock:
            self._rtts.add(seconds)

    def observe_rate(self, bytes_per_second: float, nbytes: int = BULK_BYTES) -> None:
        """Record the rate of a transfer of `nbytes`."""
        with self._lock:
            self._rates.add(bytes_per_second)
            if nbytes >= BULK_BYTES:
                self._bulk_rates.add(bytes_per_second)

    @property
    def bulk_bytes_per_second(self) -> float | None:
        """The rate of transfers so long that it is the link's, and not that of what begins and ends them; else None."""
        with self._lock:
            return self._bulk_rates.value

    @property
    def rtt_seconds(self) -> float | None:
        """The round trip of late."""
        with self._lock:
            return self._rtts.value

    @property
    def bytes_per_second(self) -> float | None:
        """The rate, which with age tends to what is assumed of links that were never measured; then None."""
        with self._lock:
            measured, age = self._rates.value, self._rates.age_seconds
        if measured is None or age is None:
            return None
        weight = 0.5 ** (age / HALF_LIFE_SECONDS)
        return math.exp(weight * math.log(measured) + (1 - weight) * math.log(DEFAULT_BYTES_PER_SECOND))

    @property
    def age_seconds(self) -> float | None:
        """Since the rate was measured."""
        with self._lock:
            return self._rates.age_seconds


@dataclass(frozen=True)
class JobSeen:
    """One remote prefill that went well: tokens ``[start, end)`` were computed, and `stream_seconds` is all of it."""

    start: int
    end: int
    compute_seconds: float
    queue_seconds: float
    predicted_queue_seconds: float
    stream_seconds: float
    payload_bytes: int

    @property
    def link_bytes_per_second(self) -> float | None:
        """The rate of the link, if it was the link that the stream waited for; None if it was the worker."""
        streaming = self.stream_seconds - self.queue_seconds
        if streaming < max(self.compute_seconds * _BOUND_BY_LINK, self.compute_seconds + 2 * _SLACK_SECONDS):
            return None
        return self.payload_bytes / streaming

    @property
    def least_bytes_per_second(self) -> float:
        """What the link can carry at least, whatever the stream waited for."""
        return self.payload_bytes / max(self.stream_seconds - self.queue_seconds, 1e-6)

    @property
    def overhead_seconds(self) -> float:
        """What neither computing nor waiting explains of a stream that the link did not hold up."""
        return max(self.stream_seconds - self.queue_seconds - self.compute_seconds, 0.0)


@dataclass(frozen=True)
class Expected:
    """What experience adds to a peer's own card: factors on its computing and its waiting, and seconds besides.

    `doubt` is the probability that it does not deliver, `engaged_seconds` how long it is at work for this head.
    """

    compute_factor: float = 1.0
    queue_factor: float = 1.0
    overhead_seconds: float = 0.0
    doubt: float = 0.0
    engaged_seconds: float = 0.0


class PeerEstimate:
    """One worker, as its jobs went. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._compute = RunningMedian(clock)
        self._queue = RunningMedian(clock)
        self._overhead = RunningMedian(clock)

    def observe(self, job: JobSeen, curve: PrefillCurve | None) -> None:
        """Compare `job` with what was to be expected; `curve` is the worker's own."""
        with self._lock:
            if curve is not None and job.end > job.start:
                self._compute.add(_ratio(job.compute_seconds, curve.seconds(job.start, job.end)))
            self._queue.add(_ratio(job.queue_seconds, job.predicted_queue_seconds))
            if job.link_bytes_per_second is None:
                self._overhead.add(job.overhead_seconds)

    @property
    def expected(self) -> Expected:
        """What to expect now."""
        with self._lock:
            return Expected(self._compute.value or 1.0, self._queue.value or 1.0, self._overhead.value or 0.0)


class PeerEstimates:
    """All workers, by node. Thread-safe; as many as nodes have ever been seen, which the cards bound."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._peers: dict[str, PeerEstimate] = {}

    def of(self, node: str) -> PeerEstimate:
        """That of `node`."""
        with self._lock:
            return self._peers.setdefault(node, PeerEstimate(self._clock))


class PackedShare:
    """How much is left of this model's KV when it is packed. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._shares = RunningMedian(clock)

    def observe(self, share: float) -> None:
        """Record that so much was left of a transfer."""
        with self._lock:
            self._shares.add(share)

    @property
    def value(self) -> float:
        """The share to expect."""
        with self._lock:
            return self._shares.value or DEFAULT_PACKED_SHARE


def read_job(receipt: Mapping[str, Any], stream_seconds: float, predicted_queue_seconds: float = 0.0) -> JobSeen:
    """What a worker's receipt and the seconds of its whole stream tell. The receipt is a checked one."""
    start = int(receipt["pool_tokens"])
    return JobSeen(
        start=start,
        end=start + int(receipt["computed_tokens"]),
        compute_seconds=float(receipt["compute_seconds"]),
        queue_seconds=float(receipt["queue_seconds"]),
        predicted_queue_seconds=predicted_queue_seconds,
        stream_seconds=stream_seconds,
        payload_bytes=int(receipt["payload_bytes"]),
    )


def _ratio(seen: float, predicted: float) -> float:
    """How many times as long it took, within bounds; about 1 where both are next to nothing."""
    ratio = (seen + _SLACK_SECONDS) / (predicted + _SLACK_SECONDS)
    return min(max(ratio, 1 / _FACTOR_LIMIT), _FACTOR_LIMIT)


__all__ = [
    "BULK_BYTES",
    "DEFAULT_PACKED_SHARE",
    "FORGOTTEN_SECONDS",
    "HALF_LIFE_SECONDS",
    "Clock",
    "Expected",
    "JobSeen",
    "LinkEstimate",
    "PackedShare",
    "PeerEstimate",
    "PeerEstimates",
    "RunningMedian",
    "read_job",
]
