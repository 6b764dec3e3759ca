"""What a page shows, read from memory: once a second for all viewers of a tenant together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kakeya_ops.dashboard.charts import POINTS

FRESH_SECONDS = 0.8
"""Pages ask once a second, each at its own moment."""
SHOWN_REQUESTS = 10
_MOST_TENANTS = 64

Value = Mapping[str, Any]


class Observed(Protocol):
    """`kakeya_ops.front.observatory.Observatory`, as far as it is read."""

    def summary(self) -> dict[str, Any]:
        """The totals."""

    def nodes(self, tenant: str) -> dict[str, Any]:
        """The head and the other nodes."""

    def topology(self) -> dict[str, Any]:
        """The ways between them."""

    def live(self, tenant: str) -> list[dict[str, Any]]:
        """The tenant's requests under way."""

    def requests(self, tenant: str, count: int = ...) -> list[dict[str, Any]]:
        """The tenant's last requests."""

    def series(self, count: int = ...) -> dict[str, Any]:
        """The last samples."""


@dataclass(frozen=True)
class Reading:
    """All of it at one moment; `at` is Unix time."""

    at: float
    summary: Value
    nodes: Value
    topology: Value
    live: list[dict[str, Any]]
    requests: list[dict[str, Any]]
    series: Value


class Reader:
    """Reads `observed` when somebody asks and the last reading is not fresh any more. Thread-safe."""

    def __init__(self, observed: Observed, clock: Callable[[], float] = time.monotonic) -> None:
        self._observed = observed
        self._clock = clock
        self._lock = threading.Lock()
        self._readings: dict[str, tuple[float, Reading]] = {}

    def read(self, tenant: str) -> Reading:
        """What `tenant` may see."""
        with self._lock:
            now = self._clock()
            until, reading = self._readings.get(tenant, (0.0, None))
            if reading is None or now >= until:
                reading = self._read(tenant)
                if len(self._readings) >= _MOST_TENANTS:
                    self._readings.clear()
                self._readings[tenant] = (now + FRESH_SECONDS, reading)
            return reading

    def _read(self, tenant: str) -> Reading:
        observed = self._observed
        return Reading(
            time.time(),
            observed.summary(),
            observed.nodes(tenant),
            observed.topology(),
            observed.live(tenant),
            observed.requests(tenant, SHOWN_REQUESTS),
            observed.series(POINTS),
        )


__all__ = ["FRESH_SECONDS", "SHOWN_REQUESTS", "Observed", "Reader", "Reading", "Value"]
