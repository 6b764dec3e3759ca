"""The capability card: what a node says about itself, and the exchange in which nodes pass cards on."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kakeya_ops.wire.body import Count, HexDigest, Name, Nonce, Seconds, WireBody

Role = Literal["head", "worker", "cache"]
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)] | float


class Endpoint(WireBody):
    """Where a node listens for peers.

    Of several that work the fastest is used; the highest `priority` decides until their speed is known, and of those
    that are about equally fast.
    """

    network: Name
    address: Name
    port: Annotated[int, Field(ge=1, le=65535)]
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    trusted: bool = False


class Load(WireBody):
    """Jobs in the node's queue, and how long a new one would wait by the node's own estimate."""

    queued: Count
    running: Count
    queue_seconds: Seconds


class PoolUse(WireBody):
    """The node's pool."""

    used_bytes: Count
    budget_bytes: Count


class NodeMemory(WireBody):
    """What a process takes: MLX's buffers now and at most so far, and what its system charges it with.

    MLX's figures are None without an engine, and any is where it cannot be read.
    """

    active_bytes: Count | None = None
    peak_bytes: Count | None = None
    footprint_bytes: Count | None = None


class CardLink(WireBody):
    """What a node's process last found on its best way to another one: `error` is None when it was answered there."""

    node: Name
    network: Name
    error: Annotated[str, Field(max_length=512)] | None = None


class Card(WireBody):
    """What one process says about itself at `issued_at`, good for `ttl_seconds`.

    `epoch` is the process's start in nanoseconds of Unix time, and `instance` a random number of it: two instances that
    claim one `node` at the same time are two nodes with one id. `identity` is the digest of `identity_document`; both
    are None on a node that does not know what KV it keeps. `counters` only grow within an epoch. `reason` says why it
    is not healthy, `memory` what it takes, and `links` whom it reaches; cards of older versions have none of these.
    """

    node: Name
    role: Role
    epoch: Count
    instance: Nonce
    version: Name
    endpoints: Annotated[tuple[Endpoint, ...], Field(max_length=16, strict=False)]
    identity: HexDigest | None
    identity_document: dict[Name, Any] | None
    runtime: Annotated[dict[Name, Annotated[str, Field(max_length=256)]], Field(max_length=16)] | None
    load: Load
    prefill_tokens_per_second: Seconds | None
    free_memory_bytes: Count
    pool: PoolUse
    counters: Annotated[dict[Name, Number], Field(max_length=256)]
    issued_at: Seconds
    ttl_seconds: Seconds
    healthy: bool
    reason: Annotated[str, Field(max_length=4096)] | None = None
    memory: NodeMemory | None = None
    links: Annotated[tuple[CardLink, ...], Field(max_length=256, strict=False)] = ()

    limit_bytes: ClassVar[int] = 256 * 1024


class CardsExchange(WireBody):
    """The newest cards that a node knows, its own among them: request and reply of ``POST /v1/cards``."""

    cards: Annotated[tuple[Card, ...], Field(max_length=256, strict=False)]

    limit_bytes: ClassVar[int] = 4 * 1024 * 1024


__all__ = ["Card", "CardLink", "CardsExchange", "Endpoint", "Load", "NodeMemory", "PoolUse", "Role"]
