"""What there is to be seen of a head, its requests and its fleet: plain values for API, metrics and dashboard.

A thread of its own looks once a period, so that neither the compute thread nor the event loop does any of it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kakeya_ops.front.estimates import describe_estimates
from kakeya_ops.front.events import Broadcast, Listener, Texts, render
from kakeya_ops.front.head_metrics import HeadCollector
from kakeya_ops.front.network import (
    describe_head,
    describe_node,
    describe_request,
    describe_summary,
    describe_tokens,
)
from kakeya_ops.front.series import KEPT_SAMPLES, Sample, Series, Values
from kakeya_ops.front.topology import Directions, describe_topology
from kakeya_ops.front.watch import Watch, WatchedHead
from kakeya_ops.serving.card_book import DuplicateNode
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.fleet import Fleet, Known
from kakeya_ops.serving.head import HeadService
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.wire.cards import Card

PERIOD_SECONDS = 1.0
LISTED = 50
"""Requests in one answer."""
_TOLD = 20
"""Requests in one event."""

_logger = logging.getLogger(__name__)


class Observatory:
    """Looks from `start` to `stop`. Thread-safe. `head` is to be asked instead of the one that was given.

    What is said of single requests is only for the tenant that sent them.
    """

    def __init__(self, head: HeadService, fleet: Fleet, *, period_seconds: float = PERIOD_SECONDS) -> None:
        self._head = head
        self.quarantine = head.quarantine
        self.node = self._node = head.node
        self._fleet = fleet
        self._period_seconds = period_seconds
        self._receipts = head.ledger.receipts
        self._watch = Watch(self._node.counters, self._receipts, head.cache.block_tokens)
        self._series = Series()
        self._directions = Directions(self._node.id)
        self._one_way: frozenset[str] = frozenset()
        self._looked_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="observatory", daemon=True)
        self.head = WatchedHead(head, self._watch)
        self.broadcast = Broadcast(lambda: self._node.counters.add(CounterName.LISTENERS_DROPPED))
        collector = HeadCollector(fleet.known, lambda: len(self._watch), lambda: len(self.broadcast))
        self._node.counters.registry.register(collector)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and end the streams of all listeners. Returns at once, and may be called again."""
        self._ended.set()
        self.broadcast.close()

    def summary(self) -> dict[str, Any]:
        """The fleet's totals, and how fast the head is now: the quantiles of the last minute."""
        return self._summary(self._fleet.known())

    def _summary(self, known: Sequence[Known]) -> dict[str, Any]:
        self._watch.drain()
        totals = describe_summary(self._node.counters, known)
        return totals | {"latency": self._watch.quantiles(), "live": len(self._watch)}

    def nodes(self, tenant: str) -> dict[str, Any]:
        """The head as `tenant` is served by it, and every other node."""
        return self._nodes(tenant, self._fleet.known())

    def _nodes(self, tenant: str, known: Sequence[Known]) -> dict[str, Any]:
        return {
            "head": describe_head(self._head, tenant),
            "nodes": [describe_node(one) for one in known],
            "conflicts": [DuplicateNode(conflict).message for conflict in self._node.cards.conflicts()],
        }

    def tokens(self) -> dict[str, Any]:
        """Where the prompt tokens came from."""
        return describe_tokens(self._node.counters)

    def topology(self) -> dict[str, Any]:
        """The head, the other nodes, and the ways between them."""
        return self._topology(self._fleet.known())

    def _topology(self, known: Sequence[Known]) -> dict[str, Any]:
        return describe_topology(self._node.id, known, self._one_way)

    def estimates(self) -> dict[str, Any]:
        """What the scheduler believes of each machine and each way, and from which length each worker helps."""
        return describe_estimates(self._head, self._fleet)

    def requests(self, tenant: str, count: int = LISTED) -> list[dict[str, Any]]:
        """The last requests of `tenant` that came to their first token, newest first, each with its timeline."""
        self._watch.drain()
        return [self._describe(receipt) for receipt in self._receipts.last(count, tenant=tenant)]

    def live(self, tenant: str) -> list[dict[str, Any]]:
        """The requests of `tenant` under way, oldest first, each with its progress."""
        self._watch.drain()
        return self._watch.live(tenant)

    def receipt(self, tenant: str, request_id: str) -> Receipt | None:
        """The receipt of a request of `tenant`; None also where the request was somebody else's."""
        receipt = self._receipts.get(request_id)
        return receipt if receipt and receipt.tenant == tenant else None

    def series(self, count: int = KEPT_SAMPLES) -> dict[str, Any]:
        """The newest of a quarter of an hour's samples, as lists of equal length by what was measured."""
        return {"period_seconds": self._period_seconds, **self._series.columns(count)}

    def metrics(self) -> bytes:
        """Everything for Prometheus, in its text format."""
        self._watch.drain()
        return self._node.counters.render()

    def snapshot(self, tenant: str) -> Texts:
        """All of it, as events tell it first; later ones have the newest ``sample`` in place of the ``series``."""
        return render({**self._sections(tenant, self._fleet.known()), "series": self.series()})

    def listen(self, tenant: str, first: Texts) -> Listener:
        """A listener, on the running event loop, that is told `first` and then what changes.

        Raises `TooManyListeners`.
        """
        return self.broadcast.join(tenant, first)

    def look(self) -> None:
        """Do once what is done every period."""
        self._watch.drain()
        known = self._fleet.known()
        self._one_way = self._directions.observe(known)
        self._series.add(self._sample(known))
        self.broadcast.publish(lambda tenant: self._sections(tenant, known))

    def _look_on(self) -> None:
        while not self._ended.wait(self._period_seconds):
            try:
                self.look()
            except Exception:  # a look that fails is no reason to look no more
                _logger.exception("a look at the fleet failed")

    def _sections(self, tenant: str, known: Sequence[Known]) -> dict[str, Any]:
        newest = self._series.newest
        return {
            "summary": self._summary(known),
            "tokens": self.tokens(),
            **self._nodes(tenant, known),
            "topology": self._topology(known),
            "live": self.live(tenant),
            "requests": self.requests(tenant, _TOLD),
            "sample": newest.to_json() if newest else None,
        }

    def _sample(self, known: list[Known]) -> Sample:
        now = time.monotonic()
        tally, seconds, self._looked_at = self._watch.tally(), max(now - self._looked_at, 1e-3), now
        values: Values = {
            "prefill_local_tokens_per_second": tally.local_tokens / seconds,
            "prefill_remote_tokens_per_second": tally.remote_tokens / seconds,
            "decode_tokens_per_second": tally.decoded_tokens / seconds,
            "live": float(len(self._watch)),
            **self._watch.quantiles(),
        }
        cards = {one.node: one.card for one in known if one.card} | {self._node.id: self._node.card()}
        return Sample(time.time(), values, {name: _of_node(card) for name, card in cards.items()})

    def _describe(self, receipt: Receipt) -> dict[str, Any]:
        outcome = self._watch.outcome(receipt.request_id)
        return describe_request(receipt) | {"outcome": outcome.to_json() if outcome else None}


@contextlib.contextmanager
def observing(head: HeadService, fleet: Fleet, *, period_seconds: float = PERIOD_SECONDS) -> Iterator[Observatory]:
    """An observatory that looks within it."""
    observatory = Observatory(head, fleet, period_seconds=period_seconds)
    observatory.start()
    try:
        yield observatory
    finally:
        observatory.stop()


def _of_node(card: Card) -> Values:
    return {
        "pool_used_bytes": card.pool.used_bytes,
        "pool_budget_bytes": card.pool.budget_bytes,
        "free_memory_bytes": card.free_memory_bytes,
        "footprint_bytes": card.memory.footprint_bytes if card.memory else None,
        "prefill_tokens_per_second": card.prefill_tokens_per_second,
        "queued": card.load.queued,
        "running": card.load.running,
    }


__all__ = ["LISTED", "PERIOD_SECONDS", "Observatory", "observing"]
