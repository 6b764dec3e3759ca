"""One running node: who it is, what it holds, how it is, and the card that says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.metrics import NodeCollector
from kakeya_ops.serving.presence import CARD_SECONDS, Health, NodeSettings, Presence
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.cards import MOST_CARDS, Card, Load, NodeMemory, PoolUse
from kakeya_ops.wire.packing import PACKING

if TYPE_CHECKING:
    from kakeya_ops.engine.engine import Engine
    from kakeya_ops.serving.jobs import JobBook

IDLE_STALE_SECONDS = 15.0
"""An idle engine tests itself every five seconds."""
BUSY_STALE_SECONDS = 60.0
"""A busy engine gives a sign after each chunk and step, the longest of which is far shorter on any machine of use."""

_PROBE = PartKey(BlockHash(bytes(32)), 0xFFFF)


@dataclass(eq=False)
class Node(Presence):
    """A node of any role. A worker and a head have an `engine`; a worker has `jobs` besides."""

    pool: BlockPool
    identity: CacheIdentity
    engine: Engine | None = None
    jobs: JobBook | None = None
    read_quarantine: Callable[[], Sequence[str]] = field(default=tuple, kw_only=True)
    """Whom it asks no more; a head that audits sets this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._document = self.identity.to_json()
        self.counters.follow(CounterName.EVICTIONS, lambda: self.pool.stats().evictions)
        self.counters.registry.register(NodeCollector(self))

    def health(self) -> Health:
        """From the engine's own heartbeat, or from a test of the pool; never waits for work that is going on."""
        return self._engine_health(self.engine) if self.engine else self._pool_health()

    def card(self) -> Card:
        """What it says about itself now."""
        card, pool = super().card(), self.pool.stats()
        said: dict[str, object] = {
            "identity": self.identity.digest,
            "identity_document": self._document,
            "packings": (PACKING,),
            "quarantine": tuple(self.read_quarantine())[:MOST_CARDS],
            "pool": PoolUse(used_bytes=pool.used_bytes, budget_bytes=pool.budget_bytes),
        }
        return card.model_copy(update=said | (_describe_engine(self.engine, card) if self.engine else {}))

    def _engine_health(self, engine: Engine) -> Health:
        beat = engine.heartbeat()
        if not beat.alive:
            return Health(False, "the compute thread has stopped", beat.age_seconds)
        limit = BUSY_STALE_SECONDS if beat.busy else IDLE_STALE_SECONDS
        if beat.age_seconds > limit:
            return Health(False, f"the compute thread has not moved for {beat.age_seconds:.0f} s", beat.age_seconds)
        return Health(True, None, beat.age_seconds)

    def _pool_health(self) -> Health:
        """Keep and find one byte, which stays."""
        if self.pool.put(_PROBE, StoredPart.of(b"\0")) and self.pool.holds(_PROBE):
            return Health(True)
        return Health(False, "the pool takes nothing more: all of it is in use")


def _describe_engine(engine: Engine, card: Card) -> dict[str, object]:
    """What a node with `engine` says beyond its `card`."""
    waiting, use, curve = engine.queued, engine.memory(), engine.measured.curve
    used = {"active_bytes": use.active_bytes, "peak_bytes": use.peak_bytes}
    return {
        "runtime": engine.runtime.to_json(),
        "load": Load(
            queued=max(waiting - 1, 0),
            running=min(waiting, 1) + engine.decoding,
            queue_seconds=engine.queue_seconds(),
        ),
        "prefill_tokens_per_second": engine.measured.tokens_per_second,
        "prefill_seconds_per_token": curve.seconds_per_token if curve else None,
        "prefill_seconds_per_square": curve.seconds_per_square if curve else None,
        "memory": (card.memory or NodeMemory()).model_copy(update=used),
    }


__all__ = ["BUSY_STALE_SECONDS", "CARD_SECONDS", "IDLE_STALE_SECONDS", "Health", "Node", "NodeSettings"]
