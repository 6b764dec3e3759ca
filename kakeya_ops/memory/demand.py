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


def workload_of(inventory: Inventory, host: ResolvedHost, overrides: Overrides = Overrides()) -> Workload:
    """The workload of `host`.

    A head carries `model_serving.concurrency` conversations at once, while a worker computes one prefix at a time.
    """
    role = overrides.role or host.role
    together = inventory.model_serving.concurrency if role == "head" else 1
    cache = inventory.cache
    return Workload(
        role=role,
        context_tokens=overrides.context_tokens or inventory.model_serving.context,
        concurrency=overrides.concurrency or together,
        block_tokens=cache.block_tokens,
        sink=cache.sink,
        window=cache.window,
        pool_bytes=host.pool_bytes,
    )


__all__ = ["Overrides", "workload_of"]
