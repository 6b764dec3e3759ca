"""Every metric that a node offers to Prometheus, as one list, and the collectors of those that each role has.

The counters are those of `kakeya_ops.serving.counters.CounterName`; the rest are gauges that are read when they are
asked for, and histograms of what the head measured at its clients' requests. Dashboards are made from `METRICS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import psutil
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kakeya_ops import __version__
from kakeya_ops.serving.counters import DESCRIPTIONS, CounterName
from kakeya_ops.serving.process_memory import read_footprint
from kakeya_ops.wire.cards import Role

if TYPE_CHECKING:
    from kakeya_ops.engine.engine import Engine
    from kakeya_ops.serving.node import Node
    from kakeya_ops.serving.presence import Presence

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["bytes", "seconds", "tokens", "tokens/s", "bytes/s", ""]

_ALL: frozenset[Role] = frozenset({"head", "worker", "cache"})
_COMPUTING: frozenset[Role] = frozenset({"head", "worker"})
_HEAD: frozenset[Role] = frozenset({"head"})
_WORKER: frozenset[Role] = frozenset({"worker"})


@dataclass(frozen=True)
class Metric:
    """One metric: `name` without the ``_total`` of counters or the ``_bucket`` of histograms."""

    name: str
    kind: Kind
    description: str
    unit: Unit = ""
    labels: tuple[str, ...] = ()
    roles: frozenset[Role] = _ALL


def _unit_of(name: CounterName) -> Unit:
    units: tuple[Unit, ...] = ("bytes", "seconds", "tokens")
    return next((unit for unit in units if unit in name.value.split("_")), "")


COUNTERS = tuple(
    Metric(f"kakeya_{name.value}", "counter", DESCRIPTIONS[name], _unit_of(name), ("worker", "reason"))
    for name in CounterName
)

NODE_INFO = Metric(
    "kakeya_node_info", "gauge", "Always 1; the labels say who this is.", "", ("node", "role", "version", "run")
)
START_TIME = Metric("kakeya_start_time_seconds", "gauge", "When the process started, in Unix time.", "seconds")
HEALTHY = Metric("kakeya_healthy", "gauge", "1 while the node can do its work, from the engine's own heartbeat.")
POOL_USED = Metric("kakeya_pool_used_bytes", "gauge", "KV in the pool.", "bytes")
POOL_BUDGET = Metric("kakeya_pool_budget_bytes", "gauge", "The most that the pool may hold.", "bytes")
POOL_PINNED = Metric("kakeya_pool_pinned_bytes", "gauge", "KV in the pool that is being sent or imported.", "bytes")
MEMORY_AVAILABLE = Metric("kakeya_memory_available_bytes", "gauge", "Memory that the machine could give out.", "bytes")
MEMORY_FOOTPRINT = Metric(
    "kakeya_process_footprint_bytes", "gauge", "What the system charges the process with.", "bytes"
)
MEMORY_MLX = Metric("kakeya_mlx_active_bytes", "gauge", "MLX's buffers.", "bytes", roles=_COMPUTING)
MEMORY_MLX_PEAK = Metric("kakeya_mlx_peak_bytes", "gauge", "MLX's buffers at most so far.", "bytes", roles=_COMPUTING)
QUEUED = Metric("kakeya_prompts_queued", "gauge", "Prompts prefilled or waiting for it.", roles=_COMPUTING)
DECODING = Metric("kakeya_sequences_decoding", "gauge", "Sequences being decoded.", roles=_COMPUTING)
QUEUE_SECONDS = Metric(
    "kakeya_queue_seconds", "gauge", "Estimated wait of a prompt that came now.", "seconds", roles=_COMPUTING
)
PREFILL_RATE = Metric(
    "kakeya_prefill_tokens_per_second", "gauge", "Measured prefill speed of this node.", "tokens/s", roles=_COMPUTING
)
HEARTBEAT_AGE = Metric(
    "kakeya_heartbeat_age_seconds",
    "gauge",
    "Since the compute thread last finished something.",
    "seconds",
    roles=_COMPUTING,
)
JOBS_RUNNING = Metric("kakeya_jobs_running", "gauge", "Prefill jobs for peers that have not ended.", roles=_WORKER)

LIVE_REQUESTS = Metric("kakeya_requests_live", "gauge", "Requests of clients being answered.", roles=_HEAD)
LISTENERS = Metric("kakeya_listeners", "gauge", "Readers of the event stream.", roles=_HEAD)
PEER_UP = Metric("kakeya_peer_up", "gauge", "1 while the head reaches the peer.", "", ("peer",), _HEAD)
PEER_USABLE = Metric("kakeya_peer_usable", "gauge", "1 while the head would ask the peer for KV.", "", ("peer",), _HEAD)
PEER_RTT = Metric("kakeya_peer_rtt_seconds", "gauge", "Median round trip to the peer.", "seconds", ("peer",), _HEAD)
PEER_RATE = Metric(
    "kakeya_peer_bytes_per_second", "gauge", "Median rate of transfers from the peer.", "bytes/s", ("peer",), _HEAD
)
FIRST_TOKEN = Metric(
    "kakeya_first_token_seconds", "histogram", "From a request's arrival to its first token.", "seconds", roles=_HEAD
)
INTER_TOKEN = Metric(
    "kakeya_inter_token_seconds", "histogram", "Between two tokens of one answer.", "seconds", roles=_HEAD
)
REQUEST_SECONDS = Metric(
    "kakeya_request_seconds", "histogram", "From a request's arrival to its last token.", "seconds", roles=_HEAD
)

METRICS: tuple[Metric, ...] = (
    *COUNTERS,
    NODE_INFO,
    START_TIME,
    HEALTHY,
    POOL_USED,
    POOL_BUDGET,
    POOL_PINNED,
    MEMORY_AVAILABLE,
    MEMORY_FOOTPRINT,
    MEMORY_MLX,
    MEMORY_MLX_PEAK,
    QUEUED,
    DECODING,
    QUEUE_SECONDS,
    PREFILL_RATE,
    HEARTBEAT_AGE,
    JOBS_RUNNING,
    LIVE_REQUESTS,
    LISTENERS,
    PEER_UP,
    PEER_USABLE,
    PEER_RTT,
    PEER_RATE,
    FIRST_TOKEN,
    INTER_TOKEN,
    REQUEST_SECONDS,
)
"""All of them, of every role."""


def gauge(metric: Metric, value: float | None) -> GaugeMetricFamily:
    """`metric` without labels at `value`; without any sample while the value is unknown."""
    family = GaugeMetricFamily(metric.name, metric.description)
    if value is not None:
        family.add_metric((), float(value))
    return family


class PresenceCollector(Collector):
    """What every node says of itself, also one without its model."""

    def __init__(self, node: Presence) -> None:
        self._node = node

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, as they are now."""
        node = self._node
        info = GaugeMetricFamily(NODE_INFO.name, NODE_INFO.description, labels=NODE_INFO.labels)
        info.add_metric((node.id, node.role, __version__, node.instance), 1.0)
        yield info
        yield gauge(START_TIME, node.epoch / 1e9)
        yield gauge(HEALTHY, node.health().healthy)
        yield gauge(MEMORY_AVAILABLE, psutil.virtual_memory().available)
        yield gauge(MEMORY_FOOTPRINT, read_footprint())


class NodeCollector(Collector):
    """What a node with its model adds to that: of its pool, and what belongs to its role."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, as they are now."""
        node, pool = self._node, self._node.pool.stats()
        yield gauge(POOL_USED, pool.used_bytes)
        yield gauge(POOL_BUDGET, pool.budget_bytes)
        yield gauge(POOL_PINNED, pool.pinned_bytes)
        if node.engine is not None:
            yield from _collect_engine(node.engine)
        if node.jobs is not None:
            yield gauge(JOBS_RUNNING, len(node.jobs))


def _collect_engine(engine: Engine) -> Iterator[GaugeMetricFamily]:
    memory = engine.memory()
    yield gauge(MEMORY_MLX, memory.active_bytes)
    yield gauge(MEMORY_MLX_PEAK, memory.peak_bytes)
    yield gauge(QUEUED, engine.queued)
    yield gauge(DECODING, engine.decoding)
    yield gauge(QUEUE_SECONDS, engine.queue_seconds())
    yield gauge(PREFILL_RATE, engine.measured.tokens_per_second)
    yield gauge(HEARTBEAT_AGE, engine.heartbeat().age_seconds)


__all__ = [
    "COUNTERS",
    "FIRST_TOKEN",
    "INTER_TOKEN",
    "LISTENERS",
    "LIVE_REQUESTS",
    "METRICS",
    "PEER_RATE",
    "PEER_RTT",
    "PEER_UP",
    "PEER_USABLE",
    "REQUEST_SECONDS",
    "Metric",
    "NodeCollector",
    "PresenceCollector",
    "gauge",
]
