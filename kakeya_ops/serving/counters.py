"""What a node has done since it started: counters that only grow, by name, worker and reason."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# ``kakeya_start_time_seconds`` says the same once, instead of one more series for each.
disable_created_metrics()  # type: ignore[no-untyped-call]


class CounterName(StrEnum):
    """Every counter of every role; the names are those of cards, metrics, dashboard and API."""

    REMOTE_JOBS = "remote_jobs"
    REMOTE_HITS = "remote_hits"
    REMOTE_JOB_FAILURES = "remote_job_failures"
    FALLBACKS = "fallbacks"
    TOKENS_REUSED = "tokens_reused"
    TOKENS_COMPUTED_LOCAL = "tokens_computed_local"
    TOKENS_COMPUTED_REMOTE = "tokens_computed_remote"
    TRANSFERS_RESUMED = "transfers_resumed"
    BYTES_RECEIVED = "bytes_received"
    BYTES_PUBLISHED = "bytes_published"
    BLOCKS_DROPPED = "blocks_dropped"
    IMPORT_SECONDS = "import_seconds"
    TRANSFER_SECONDS = "transfer_seconds"
    LOCAL_HITS = "local_hits"
    EVICTIONS = "evictions"
    POOL_SHRUNK = "pool_shrunk"
    # What a worker or cache does for others.
    JOBS_STARTED = "jobs_started"
    JOBS_JOINED = "jobs_joined"
    JOBS_FINISHED = "jobs_finished"
    JOBS_CANCELLED = "jobs_cancelled"
    JOBS_FAILED = "jobs_failed"
    TOKENS_COMPUTED = "tokens_computed"
    TOKENS_FROM_POOL = "tokens_from_pool"
    BYTES_SENT = "bytes_sent"
    BYTES_STORED = "bytes_stored"
    LOOKUPS = "lookups"
    FETCHES = "fetches"
    REQUESTS_REFUSED = "requests_refused"
    CARDS_UNREAD = "cards_unread"
    CONNECTIONS_REFUSED = "connections_refused"
    # What a head does for its clients.
    REQUESTS = "requests"
    REQUESTS_FAILED = "requests_failed"
    REQUESTS_JOINED = "requests_joined"
    TOKENS_ABANDONED = "tokens_abandoned"
    TOKENS_DECODED = "tokens_decoded"
    LISTENERS_DROPPED = "listeners_dropped"
    ANSWERS_PREFILLED = "answers_prefilled"
    ANSWERS_DROPPED = "answers_dropped"
    AUDITS = "audits"
    AUDIT_FAILURES = "audit_failures"
    AUDITS_DROPPED = "audits_dropped"


DESCRIPTIONS: dict[CounterName, str] = {
    CounterName.REMOTE_JOBS: "Prefixes that a worker was asked to compute.",
    CounterName.REMOTE_HITS: "Requests whose prefix came from a peer's pool.",
    CounterName.REMOTE_JOB_FAILURES: "Remote jobs that did not deliver their prefix.",
    CounterName.FALLBACKS: "Local prefills because the remote path failed, by reason.",
    CounterName.TOKENS_REUSED: "Prompt tokens that were not computed again.",
    CounterName.TOKENS_COMPUTED_LOCAL: "Prompt tokens that this head computed.",
    CounterName.TOKENS_COMPUTED_REMOTE: "Prompt tokens that workers computed for this head.",
    CounterName.TRANSFERS_RESUMED: "Peers that failed in mid-stream and whose rest another peer delivered, by reason.",
    CounterName.BYTES_RECEIVED: "Bytes of KV received from peers.",
    CounterName.BYTES_PUBLISHED: "Bytes of KV stored in peers' pools.",
    CounterName.BLOCKS_DROPPED: "Blocks that were to be stored in peers' pools and were not, by reason.",
    CounterName.IMPORT_SECONDS: "Seconds spent placing KV, received or from the pool, into buffers.",
    CounterName.TRANSFER_SECONDS: "Seconds spent in streams of KV from peers.",
    CounterName.LOCAL_HITS: "Requests whose prefix was, in part at least, in this head's own pool.",
    CounterName.EVICTIONS: "Payloads that left the pool for lack of room.",
    CounterName.POOL_SHRUNK: "Times that the pool was made smaller because memory ran short.",
    CounterName.JOBS_STARTED: "Prefill jobs begun for peers.",
    CounterName.JOBS_JOINED: "Requests that shared a job which was running already.",
    CounterName.JOBS_FINISHED: "Prefill jobs that reached their end.",
    CounterName.JOBS_CANCELLED: "Prefill jobs given up because nobody wanted them any more.",
    CounterName.JOBS_FAILED: "Prefill jobs that ended in an error.",
    CounterName.TOKENS_COMPUTED: "Prompt tokens computed for peers.",
    CounterName.TOKENS_FROM_POOL: "Prompt tokens of jobs that this node's pool held already.",
    CounterName.BYTES_SENT: "Bytes of KV sent to peers.",
    CounterName.BYTES_STORED: "Bytes of KV that peers have stored here.",
    CounterName.LOOKUPS: "Lookups answered.",
    CounterName.FETCHES: "Fetches answered.",
    CounterName.REQUESTS_REFUSED: "Peer requests answered with an error, by its code.",
    CounterName.CARDS_UNREAD: "Cards of other nodes that this release cannot read, each time they come.",
    CounterName.CONNECTIONS_REFUSED: "Connections to a TLS port that were not let in, by reason.",
    CounterName.REQUESTS: "Requests of clients that were taken up.",
    CounterName.REQUESTS_FAILED: "Requests of clients that ended without a whole answer, by reason.",
    CounterName.REQUESTS_JOINED: "Requests that waited for the prefill of an equal one under way.",
    CounterName.TOKENS_ABANDONED: "Prompt tokens computed here for requests that ended before their first token.",
    CounterName.TOKENS_DECODED: "Tokens decoded for clients.",
    CounterName.ANSWERS_PREFILLED: "Finished answers that were prefilled for a next turn, by the worker that did it.",
    CounterName.ANSWERS_DROPPED: "Finished answers that were to be prefilled for a next turn and were not, by reason.",
    CounterName.LISTENERS_DROPPED: "Readers of the event stream that were too slow and were let go.",
    CounterName.AUDITS: "Imported prefixes that this head computed again and compared.",
    CounterName.AUDIT_FAILURES: "Audits that found a node's KV to be wrong.",
    CounterName.AUDITS_DROPPED: "Imports that were to be audited, for which there was no idle moment in time.",
}

_Labels = tuple[str, str]


class Counters:
    """Thread-safe. A counter has a value for each `worker` and `reason`; where these mean nothing they are empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[CounterName, defaultdict[_Labels, float]] = {n: defaultdict(float) for n in CounterName}
        self._followed: dict[CounterName, Callable[[], float]] = {}
        self.registry = CollectorRegistry()
        self.registry.register(_Export(self))

    def add(self, name: CounterName, amount: float = 1, *, worker: str = "", reason: str = "") -> None:
        """Let `name` grow by `amount`. Raises `ValueError` if it would shrink."""
        if amount < 0:
            raise ValueError(f"{name} cannot shrink by {-amount}")
        with self._lock:
            self._values[name][worker, reason] += amount

    def follow(self, name: CounterName, read: Callable[[], float]) -> None:
        """Take `name`'s value from `read`, for what is counted elsewhere already."""
        self._followed[name] = read

    def value(self, name: CounterName, *, worker: str | None = None, reason: str | None = None) -> float:
        """The sum over all labels, or over those that are given."""
        return sum(
            amount
            for (found_worker, found_reason), amount in self.samples(name).items()
            if worker in (None, found_worker) and reason in (None, found_reason)
        )

    def samples(self, name: CounterName) -> dict[_Labels, float]:
        """The value for each ``(worker, reason)``; a single 0 without labels if there was none yet."""
        if name in self._followed:
            return {("", ""): self._followed[name]()}
        with self._lock:
            return dict(self._values[name]) or {("", ""): 0.0}

    def snapshot(self) -> dict[str, int | float]:
        """Every counter's sum over all labels, whole numbers as integers."""
        return {name.value: _plain(self.value(name)) for name in CounterName}

    def by_worker(self) -> dict[str, dict[str, int | float]]:
        """For each worker the counters that it has a part in."""
        found: defaultdict[str, dict[str, int | float]] = defaultdict(dict)
        for name in CounterName:
            for worker in {worker for worker, _ in self.samples(name)} - {""}:
                found[worker][name.value] = _plain(self.value(name, worker=worker))
        return dict(found)

    def by_reason(self, name: CounterName) -> dict[str, int | float]:
        """The sums of `name` by reason."""
        reasons = {reason for _, reason in self.samples(name)} - {""}
        return {reason: _plain(self.value(name, reason=reason)) for reason in sorted(reasons)}

    def render(self) -> bytes:
        """All counters, and whatever else is in `registry`, in Prometheus' text format (`CONTENT_TYPE`)."""
        return generate_latest(self.registry)


class _Export(Collector):
    """Counters for Prometheus, as ``kakeya_<name>_total``."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[CounterMetricFamily]:
        for name in CounterName:
            family = CounterMetricFamily(f"kakeya_{name.value}", DESCRIPTIONS[name], labels=("worker", "reason"))
            for labels, amount in self._counters.samples(name).items():
                family.add_metric(labels, amount)
            yield family


def _plain(value: float) -> int | float:
    return int(value) if value == int(value) else value


__all__ = ["CONTENT_TYPE", "DESCRIPTIONS", "CounterName", "Counters"]
