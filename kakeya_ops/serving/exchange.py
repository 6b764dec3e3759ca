"""Cards to and from every host of the inventory, and what each way to it is worth.

One thread for each endpoint: a host that hangs holds up nobody else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kakeya_ops.errors import PeerError
from kakeya_ops.inventory.sections import Endpoint as InventoryEndpoint
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint, StopFlag, Timeouts
from kakeya_ops.serving.card_book import Conflict, DuplicateNode
from kakeya_ops.serving.estimates import Clock, LinkEstimate
from kakeya_ops.serving.links import Link, best_link
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.standing import Standing
from kakeya_ops.units import NodeId

PERIOD_SECONDS = 2.0
_LEAST_TRANSFER_BYTES = 64 * 1024
"""Shorter transfers tell more of the round trip than of the rate."""
_TIMEOUTS = Timeouts(connect_seconds=2.0, reply_seconds=5.0, silence_seconds=10.0)
_JOIN_SECONDS = 10.0
_NOT_TRIED = "not tried yet"
_FAILED = "failed a request, and is tried again soon"

_logger = logging.getLogger(__name__)


class Exchange:
    """Runs from `start` to `stop`; may be asked from any thread. `clock` gives monotonic seconds."""

    def __init__(
        self,
        node: Node,
        hosts: Mapping[NodeId, Sequence[InventoryEndpoint]],
        *,
        period_seconds: float = PERIOD_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._node = node
        self._period_seconds = period_seconds
        self._clock = clock
        self._stop = StopFlag()
        self._changed = threading.Condition()
        self._round = 0
        self._told: frozenset[Conflict] = frozenset()
        self._standing = Standing(clock)
        self._ways = {
            host: [_Way(node, host, endpoint, self._standing) for endpoint in endpoints]
            for host, endpoints in hosts.items()
            if host != node.id
        }
        self._threads: list[threading.Thread] = []
        node.read_links = self.links

    def start(self) -> None:
        """Begin to exchange."""
        for ways in self._ways.values():
            for way in ways:
                thread = threading.Thread(target=self._watch, args=(way,), name=f"cards-{way.node}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """End, breaking off what is under way."""
        self._stop.stop()
        self.wake()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        for ways in self._ways.values():
            for way in ways:
                way.client.close()

    def wake(self) -> None:
        """Exchange now, instead of at the end of the period."""
        with self._changed:
            self._round += 1
            self._changed.notify_all()

    def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until `condition` holds, which is looked at after every exchange; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(condition, seconds)

    def links(self) -> dict[str, Link]:
        """The best way to each node of the inventory; one that fails is told as long as there is no better."""
        best = {node: best_link(way.link() for way in ways) for node, ways in self._ways.items()}
        return {node: link for node, link in best.items() if link}

    def ways(self, node: str) -> list[Link]:
        """Every way to `node`, in the order of the inventory."""
        return [way.link() for way in self._ways.get(NodeId(node), ())]

    def avoid(self, node: str, endpoint: Endpoint) -> bool:
        """Leave the way to `node` by `endpoint`, which failed a request, if there is another that works.

        It is used again when its pause is over and an exchange over it succeeds; each failure lengthens the pause.
        """
        failed = self._way(node, endpoint)
        if failed is None or not any(way.link().up for way in self._ways[failed.node] if way is not failed):
            return False
        self._standing.failed(failed.name)
        failed.error = _FAILED
        self.wake()
        return True

    def client(self, node: str, link: Link) -> PeerClient | None:
        """A client of `node` over `link`, or None if that does not work now."""
        way = self._way(node, link.endpoint)
        return way.client if way and way.link().up else None

    def observe_transfer(self, node: str, endpoint: Endpoint, nbytes: int, seconds: float) -> None:
        """Learn the rate of the way to `node` by `endpoint` from a transfer over it that nothing else held up."""
        way = self._way(node, endpoint)
        if way and nbytes >= _LEAST_TRANSFER_BYTES and seconds > 0:
            way.estimate.observe_rate(nbytes / seconds, nbytes)
            self._standing.succeeded(way.name)

    def _way(self, node: str, endpoint: Endpoint) -> _Way | None:
        return next((way for way in self._ways.get(NodeId(node), ()) if way.endpoint == endpoint), None)

    def _watch(self, way: _Way) -> None:
        while not self._stop.stopped:
            seen = self._round
            self._exchange(way)
            with self._changed:
                self._changed.notify_all()
                self._changed.wait_for(partial(self._is_called, seen), self._period_seconds)

    def _is_called(self, seen: int) -> bool:
        return self._stop.stopped or self._round != seen

    def _exchange(self, way: _Way) -> None:
        cards = self._node.cards
        began = self._clock()
        try:
            known = way.client.exchange(cards.fresh().values(), self._stop)
        except PeerError as error:
            if way.error in (None, _NOT_TRIED, _FAILED):
                _logger.warning("peer not reached", extra=way.fields | {"reason": error.message})
            way.error = error.message
            return
        way.estimate.observe_rtt(self._clock() - began)
        if way.error is not None:
            _logger.info("peer reached", extra=way.fields)
        way.error = None
        self._node.learn(known)
        self._tell_conflicts(frozenset(cards.conflicts()))

    def _tell_conflicts(self, conflicts: frozenset[Conflict]) -> None:
        with self._changed:
            news, self._told = conflicts - self._told, conflicts
        for conflict in news:
            _logger.error("%s", DuplicateNode(conflict).message)


class _Way:
    """One endpoint of one host, and what is known of it."""

    def __init__(self, caller: Node, node: NodeId, endpoint: InventoryEndpoint, standing: Standing) -> None:
        self.node = node
        self.priority = endpoint.priority
        self.endpoint = Endpoint(endpoint.address, endpoint.port, endpoint.network, in_clear=endpoint.in_clear)
        self.client = PeerClient(node, self.endpoint, caller.caller, caller.identity.layout, _TIMEOUTS)
        self.name = f"{node} {self.endpoint}"
        self.estimate = LinkEstimate(standing.clock)
        self._standing = standing
        self.error: str | None = _NOT_TRIED

    @property
    def fields(self) -> dict[str, str]:
        """What the log calls it."""
        return {"peer": self.node, "endpoint": str(self.endpoint)}

    def link(self) -> Link:
        return Link(
            endpoint=self.endpoint,
            rtt_seconds=self.estimate.rtt_seconds,
            bytes_per_second=self.estimate.bytes_per_second,
            last_error=self.error if self.error or self._standing.usable(self.name) else _FAILED,
            priority=self.priority,
            bulk_bytes_per_second=self.estimate.bulk_bytes_per_second,
        )


__all__ = ["PERIOD_SECONDS", "Exchange"]
