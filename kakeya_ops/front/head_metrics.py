"""What a head's metrics have beyond every node's: its peers, its live requests, its listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kakeya_ops.serving.fleet import Known
from kakeya_ops.serving.metrics import (
    LISTENERS,
    LIVE_REQUESTS,
    PEER_RATE,
    PEER_RTT,
    PEER_UP,
    PEER_USABLE,
    Metric,
    gauge,
)

_Read = Callable[[Known], float | None]

_PEER_METRICS: Sequence[tuple[Metric, _Read]] = (
    (PEER_UP, lambda known: known.reachable),
    (PEER_USABLE, lambda known: known.usable),
    (PEER_RTT, lambda known: known.link.rtt_seconds if known.link else None),
    (PEER_RATE, lambda known: known.link.bytes_per_second if known.link else None),
)


class HeadCollector(Collector):
    """Reads `known`, and how many requests are `live` and how many `listeners` there are, when it is asked."""

    def __init__(
        self, known: Callable[[], Sequence[Known]], live: Callable[[], int], listeners: Callable[[], int]
    ) -> None:
        self._known = known
        self._live = live
        self._listeners = listeners

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, as they are now."""
        yield gauge(LIVE_REQUESTS, self._live())
        yield gauge(LISTENERS, self._listeners())
        known = self._known()
        for metric, read in _PEER_METRICS:
            family = GaugeMetricFamily(metric.name, metric.description, labels=metric.labels)
            for one in known:
                value = read(one)
                if value is not None:
                    family.add_metric((one.node,), float(value))
            yield family


__all__ = ["HeadCollector"]
