"""What is known of the ways to a node, and which of them is best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.scheduler import DEFAULT_BYTES_PER_SECOND

_SAMPLE_BYTES = 1024 * 1024
"""Ways are compared by how long they would take to bring this much."""
_ABOUT_EQUAL = 1.5
"""Costs within this factor are no reason to leave the way that the operator prefers."""


PACKS_BYTES_PER_SECOND = 100e6
"""What one core surely packs: 106 to 149 MB/s were measured on a slow one, and twice as many are unpacked."""
_WORTH = 1.1
"""Packing that gains less than this factor is not worth a core on each side."""


def packed_rate(bytes_per_second: float | None, share: float) -> float | None:
    """Bytes of KV a second over a link with packing, which leaves `share` of them; None where it does not pay.

    What was not measured is taken for fast.
    """
    if bytes_per_second is None:
        return None
    rate = min(bytes_per_second / share, PACKS_BYTES_PER_SECOND)
    return rate if rate >= bytes_per_second * _WORTH else None


@dataclass(frozen=True)
class Link:
    """One way to a node at present. What was not measured yet is None, as is `last_error` when all is well."""

    endpoint: Endpoint
    rtt_seconds: float | None
    bytes_per_second: float | None
    last_error: str | None
    priority: int = 0
    bulk_bytes_per_second: float | None = None
    """The rate of transfers that were long enough to call the link slow by."""

    @property
    def up(self) -> bool:
        """Whether the last exchange over it worked."""
        return self.last_error is None and self.rtt_seconds is not None

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        return {
            "network": self.endpoint.network,
            "address": self.endpoint.address,
            "port": self.endpoint.port,
            "security": self.endpoint.security,
            "rtt_seconds": self.rtt_seconds,
            "bytes_per_second": self.bytes_per_second,
            "last_error": self.last_error,
        }


def best_link(links: Iterable[Link]) -> Link | None:
    """The quickest of those that work, or else one that does not; None if there are none.

    The highest priority decides among those that are about as quick as the quickest, among those that do not work, and
    among all while no rate was measured. The order in which the links are given decides nothing.
    """
    every = list(links)
    working = [link for link in every if link.up]
    costs = {link.endpoint: _cost_seconds(link, working) for link in working}
    near = working or every
    if any(link.bytes_per_second for link in working):
        limit_seconds = min(costs.values()) * _ABOUT_EQUAL
        near = [link for link in working if costs[link.endpoint] <= limit_seconds]

    def rank(link: Link) -> tuple[int, float, str, int, str]:
        end = link.endpoint
        return -link.priority, costs.get(end, 0.0), end.address, end.port, end.network

    return min(near, key=rank, default=None)


def _cost_seconds(link: Link, working: Iterable[Link]) -> float:
    """How long `link` would take for the sample.

    One that was never measured counts as no slower than any that should yield to it: it could not be measured else.
    """
    lower = (other.bytes_per_second or 0.0 for other in working if other.priority < link.priority)
    rate = link.bytes_per_second or max(DEFAULT_BYTES_PER_SECOND, *lower, 0.0)
    return (link.rtt_seconds or 0.0) + _SAMPLE_BYTES / rate


__all__ = ["PACKS_BYTES_PER_SECOND", "Link", "best_link", "packed_rate"]
