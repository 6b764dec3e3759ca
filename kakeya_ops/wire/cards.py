"""The capability card: what a node says about itself, and the exchange in which nodes pass cards on.

Nodes of neighbouring releases read each other's cards. A field that a newer one has added is passed on and otherwise
ignored, so whatever is added later has a default here and never changes the meaning of what is here already. A card
that cannot be read all the same is left out of its exchange, which goes on; `CardsExchange.unread` tells of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr

from kakeya_ops.errors import InputError, ReleaseMismatch
from kakeya_ops.wire.body import Count, HexDigest, Name, Nonce, Seconds, TellingBody

Role = Literal["head", "worker", "cache"]
MOST_CARDS = 256
"""Of one exchange."""
_MOST_CHARACTERS = 256
"""Of a name."""
Number = Annotated[int, Field(ge=-(2**63), lt=2**63)] | float


class Endpoint(TellingBody):
    """Where a node listens for peers.

    Of several that work the fastest is used; the highest `priority` decides until their speed is known, and of those
    that are about equally fast. With `tls` nothing but TLS is spoken there; nodes of the first releases do not tell.
    """

    network: Name
    address: Name
    port: Annotated[int, Field(ge=1, le=65535)]
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0
    trusted: bool = False
    tls: bool = False


class Load(TellingBody):
    """Jobs in the node's queue, and how long a new one would wait by the node's own estimate."""

    queued: Count
    running: Count
    queue_seconds: Seconds


class PoolUse(TellingBody):
    """The node's pool."""

    used_bytes: Count
    budget_bytes: Count


class NodeMemory(TellingBody):
    """What a process takes: MLX's buffers now and at most so far, and what its system charges it with.

    MLX's figures are None without an engine, and any is where it cannot be read.
    """

    active_bytes: Count | None = None
    peak_bytes: Count | None = None
    footprint_bytes: Count | None = None


class CardLink(TellingBody):
    """What a node's process last found on its best way to another one: `error` is None when it was answered there."""

    node: Name
    network: Name
    error: Annotated[str, Field(max_length=512)] | None = None


class Card(TellingBody):
    """What one process says about itself at `issued_at`, good for `ttl_seconds`.

    `epoch` is the process's start in nanoseconds of Unix time, and `instance` a random number of it: two instances that
    claim one `node` at the same time are two nodes with one id. `identity` is the digest of `identity_document`; both
    are None on a node that does not know what KV it keeps. `counters` only grow within an epoch. `reason` says why it
    is not healthy, `memory` what it takes, `links` whom it reaches, and `wire` which version of the peer protocol it
    speaks; cards of the first releases have none of these.

    A prompt of n tokens takes `prefill_seconds_per_token` times n and `prefill_seconds_per_square` times n squared;
    `prefill_tokens_per_second` is the rate of the last chunks, wherever they were. `packings` names how it can make the
    blocks that it sends smaller, and a head's `quarantine` whom it asks no more since an audit.
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
    wire: Count = 1
    prefill_seconds_per_token: Seconds | None = None
    prefill_seconds_per_square: Seconds | None = None
    packings: Annotated[tuple[Name, ...], Field(max_length=16, strict=False)] = ()
    quarantine: Annotated[tuple[Name, ...], Field(max_length=MOST_CARDS, strict=False)] = ()

    limit_bytes: ClassVar[int] = 256 * 1024


class UnreadCard(NamedTuple):
    """A card of an exchange that this release cannot read: whose it is, as far as it says, and what is wrong."""

    node: str
    reason: str


class CardsExchange(TellingBody):
    """The newest cards that a node knows, its own among them: request and reply of ``POST /v1/cards``."""

    cards: Annotated[tuple[Card, ...], Field(max_length=MOST_CARDS, strict=False)]
    _unread: tuple[UnreadCard, ...] = PrivateAttr(())

    limit_bytes: ClassVar[int] = 4 * 1024 * 1024

    @property
    def unread(self) -> tuple[UnreadCard, ...]:
        """The cards that were left out because this release cannot read them."""
        return self._unread

    def check(self, node: str) -> None:
        """Raise `ReleaseMismatch` if the card of `node` is among those that cannot be read."""
        for card in self._unread:
            if card.node == node:
                raise ReleaseMismatch(node, card.reason)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The exchange in `data`, without the cards that cannot be read. Raises `InputError` for what is none."""
        try:
            return super().parse(data)
        except InputError:
            values = _list_cards(data) if len(data) <= cls.limit_bytes else None
            if values is None:
                raise
        return cls._read_singly(values)

    @classmethod
    def _read_singly(cls, values: Sequence[object]) -> Self:
        cards: list[Card] = []
        unread: list[UnreadCard] = []
        for value in values:
            try:
                cards.append(Card.parse(json.dumps(value).encode()))
            except InputError as error:
                unread.append(UnreadCard(_name_of(value), error.message))
        found = cls(cards=tuple(cards))
        found._unread = tuple(unread)
        return found


def _list_cards(data: bytes) -> Sequence[object] | None:
    """The values that stand in the place of cards; None for what is no exchange at all."""
    try:
        values = json.loads(data)["cards"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return values if isinstance(values, list) and len(values) <= MOST_CARDS else None


def _name_of(value: object) -> str:
    name = value.get("node") if isinstance(value, dict) else None
    return name if isinstance(name, str) and 0 < len(name) <= _MOST_CHARACTERS else "a node without a name"


__all__ = ["Card", "CardLink", "CardsExchange", "Endpoint", "Load", "NodeMemory", "PoolUse", "Role", "UnreadCard"]
