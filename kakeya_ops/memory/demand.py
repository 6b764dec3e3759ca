"""What a host of the inventory is to do, in the words of the footprint."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.memory.footprint import Role, Workload


@dataclass(frozen=True, slots=True)
class Overrides:
    """What a person asks about instead of what the inventory says; None leaves it."""

    role: Role | None = None
    context_tokens: int | None = None
    concurrency: int | None = None


NO_OVERRIDES = Overrides()


def workload_of(inventory: Inventory, host: ResolvedHost, overrides: Overrides = NO_OVERRIDES) -> Workload:
    """What `host` is to do: a head answers `model_serving.concurrency` conversations and asks workers for each."""
    cache = inventory.cache
    return Workload(
        role=overrides.role or host.role,
        context_tokens=overrides.context_tokens or inventory.model_serving.context,
        concurrency=overrides.concurrency or inventory.model_serving.concurrency,
        block_tokens=cache.block_tokens,
        sink=cache.sink,
        window=cache.window,
        pool_bytes=host.pool_bytes,
    )


__all__ = ["NO_OVERRIDES", "Overrides", "workload_of"]
