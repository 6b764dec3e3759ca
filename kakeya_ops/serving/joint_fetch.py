"""One prefix from several peers at once: a thread and a stream for each, until all of it is there or nobody is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kakeya_ops.errors import PeerError
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.division import Division, Place
from kakeya_ops.serving.receipts import SourcePart
from kakeya_ops.serving.scheduler import DEFAULT_BYTES_PER_SECOND
from kakeya_ops.serving.supply import BlocksGone, Delivery, OnPart, Order, Source, explain_fallback

MOST_SOURCES = 4
"""Peers that are asked for one prefix at a time: more would only share the same network card."""


@dataclass(frozen=True)
class Offer:
    """A peer that can be resumed after `blocks` blocks of the prompt."""

    source: Source
    blocks: int

    @property
    def bytes_per_second(self) -> float:
        """Of its link, as far as that is known."""
        return self.source.link.get("bytes_per_second") or DEFAULT_BYTES_PER_SECOND


@dataclass
class _Runner:
    """One peer at work. `error` is why it does no more."""

    source: Source
    stop: StopFlag
    places: list[Place] = field(default_factory=list)
    payload_bytes: int = 0
    seconds: float = 0.0
    delivery: Delivery | None = None
    error: PeerError | None = None

    def share(self) -> SourcePart:
        return SourcePart(
            node=self.source.node,
            epoch=self.delivery.epoch if self.delivery else None,
            instance=self.delivery.instance if self.delivery else None,
            blocks=len({block for block, _ in self.places}),
            payload_bytes=self.payload_bytes,
            transfer_seconds=round(self.seconds, 6),
            link=self.source.link,
            fault=explain_fallback(self.error).reason if self.error else None,
        )


class JointFetch:
    """Brings what `order` wants from those who `offers` it, the fastest first. Used once.

    Each payload is passed to `on_part` once, by whoever brings it first, and from its thread: so several at a time.
    """

    def __init__(self, order: Order, offers: Sequence[Offer], on_part: OnPart) -> None:
        self._order = order
        self._on_part = on_part
        self._changed = threading.Condition()
        self._claimed: set[Place] = set()
        self._running: set[str] = set()
        self._bug: Exception | None = None
        layout = order.prompt.layout
        self._division = Division(layout, order.places)
        self._runners: list[_Runner] = []
        for offer in sorted(offers, key=lambda offer: -offer.bytes_per_second)[:MOST_SOURCES]:
            can = set(layout.needed(offer.blocks)).intersection(order.places)
            self._division.join(offer.source.node, can, offer.bytes_per_second)
            self._runners.append(_Runner(offer.source, StopFlag()))

    def run(self) -> bool:
        """Whether all has come. Raises `CallAborted` when nobody waits any more."""
        begun = [(runner, self._division.take(runner.source.node)) for runner in self._runners]
        self._running = {runner.source.node for runner in self._runners}
        for runner, piece in begun:
            self._order.errand.stop.relay(runner.stop)
            name = f"fetch-{runner.source.node}"
            threading.Thread(target=self._work, args=(runner, piece), name=name, daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: self._division.complete or not self._running)
            complete = self._division.complete
        for runner in self._runners:
            runner.stop.stop()
        if self._bug:
            raise self._bug
        if not complete and self._order.errand.stop.stopped:
            raise CallAborted(self._runners[0].source.node)
        return complete

    @property
    def shares(self) -> tuple[SourcePart, ...]:
        """What each of those contributed that were asked for anything; the largest first."""
        with self._changed:
            shares = [runner.share() for runner in self._runners if runner.places or runner.error]
        return tuple(sorted(shares, key=lambda share: -share.payload_bytes))

    @property
    def brought(self) -> dict[str, tuple[Place, ...]]:
        """What each of them brought."""
        with self._changed:
            return {runner.source.node: tuple(runner.places) for runner in self._runners}

    @property
    def error(self) -> PeerError:
        """Why it is not complete."""
        errors = [runner.error for runner in self._runners if runner.error]
        return errors[0] if errors else BlocksGone(self._runners[0].source.node)

    def _work(self, runner: _Runner, piece: list[Place]) -> None:
        try:
            while piece := piece or self._next(runner):
                self._fetch(runner, piece)
                piece = []
        except CallAborted:
            pass
        except PeerError as error:
            runner.error = error
        except Exception as error:  # noqa: BLE001 - the edge of a thread: whoever waits is told
            self._bug = error
        finally:
            with self._changed:
                self._division.ended(runner.source.node, lost=True)
                self._running.discard(runner.source.node)
                self._changed.notify_all()

    def _next(self, runner: _Runner) -> list[Place]:
        """Its next piece; nothing when there will be none."""
        with self._changed:
            while not self._division.complete and not runner.stop.stopped:
                if piece := self._division.take(runner.source.node):
                    return piece
                if self._running == {runner.source.node} or self._division.hopeless():
                    break
                self._changed.wait()
            return []

    def _fetch(self, runner: _Runner, piece: list[Place]) -> None:
        began = time.monotonic()
        order = replace(self._order, wanted=tuple(piece), errand=replace(self._order.errand, stop=runner.stop))
        try:
            runner.delivery = runner.source.fetch(order, self._arrivals(runner))
        finally:
            runner.seconds += time.monotonic() - began
        with self._changed:
            self._division.ended(runner.source.node, lost=False)
            gone = any(place not in self._claimed for place in piece)
            self._changed.notify_all()
        if gone:
            raise BlocksGone(runner.source.node)

    def _arrivals(self, runner: _Runner) -> Callable[[int, int, StoredPart], None]:
        def arrive(block: int, part: int, stored: StoredPart) -> None:
            with self._changed:
                if (block, part) in self._claimed:
                    return
                self._claimed.add((block, part))
            self._on_part(block, part, stored)
            with self._changed:
                runner.places.append((block, part))
                runner.payload_bytes += stored.nbytes
                self._division.arrived((block, part))
                self._changed.notify_all()

        return arrive


__all__ = ["MOST_SOURCES", "JointFetch", "Offer"]
