"""Where a request's prefix is to come from: pure arithmetic over what was measured.

The prediction is the time to the first token. With n prompt tokens, of which the head's own pool holds h:

- *local*: wait for the head's queue, compute n - h tokens, and pay for every stream that is stalled meanwhile;
- *import* from a peer that holds p > h: a round trip, the bytes of p - h tokens, then the rest locally;
- *remote compute*: a round trip, the worker's queue, the slower of computing and transferring (they overlap, so only
  the last block's bytes come on top), then the rest locally. A worker computes from the end of what it holds itself:
  what the head holds spares it nothing but the transfer.

The rest waits for the head's queue too, which shortens while the prefix is on its way. What was not measured counts as
the stated default, which is on the slow side for remote work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from kakeya_ops.kv.layout import KvLayout

Kind = Literal["local", "import", "remote_compute"]
Policy = Literal["measured", "prefer_remote", "local_only"]
Demand = Literal["none", "local", "remote"]

DEFAULT_BYTES_PER_SECOND = 50e6
"""Of a link that was never measured: half of what gigabit Ethernet carries."""
DEFAULT_TOKENS_PER_SECOND = 50.0
"""Of a machine whose prefill was never measured."""


@dataclass(frozen=True)
class Local:
    """The head itself: `resume_blocks` are in its own pool, `decoding` streams would be stalled by its prefill."""

    resume_blocks: int
    tokens_per_second: float | None
    queue_seconds: float
    decoding: int


@dataclass(frozen=True)
class Candidate:
    """A healthy peer with the same cache identity. `computes` is false for cache peers."""

    node: str
    computes: bool
    resume_blocks: int
    tokens_per_second: float | None
    queue_seconds: float
    rtt_seconds: float
    bytes_per_second: float | None


@dataclass(frozen=True)
class Rules:
    """The inventory's `prefill` section as far as it decides, and what an operator's directive demands."""

    policy: Policy
    min_tokens: int
    demand: Demand = "none"


@dataclass(frozen=True)
class Decision:
    """`blocks` is the resume point that the prefix will reach before the head computes the rest itself."""

    kind: Kind
    node: str | None
    blocks: int
    reason: str
    predicted_seconds: dict[str, float] = field(default_factory=dict)
    settled: bool = False
    """True when no offer of any peer could have changed it."""


def choose(layout: KvLayout, prompt_tokens: int, local: Local, peers: Iterable[Candidate], rules: Rules) -> Decision:
    """Choose where the prefix of a prompt of `prompt_tokens` tokens comes from. Pure and deterministic."""
    course = _Course(layout, prompt_tokens, local)
    stay = Decision("local", None, course.own_blocks, "", {"local": course.local_seconds()})
    if reason := _reason_to_stay(course, rules):
        return replace(stay, reason=reason, settled=True)
    offers = sorted((offer for peer in peers for offer in course.offers(peer)), key=_by_time)
    if not offers:
        return replace(stay, reason="no healthy peer with the same cache identity can help")
    best = offers[0]
    predicted = {"local": course.local_seconds()} | {f"{o.kind} {o.node}": o.seconds for o in reversed(offers)}
    remote = Decision(best.kind, best.node, best.blocks, "", predicted)
    if rules.demand == "remote":
        return replace(remote, reason="demanded by a signed directive")
    if rules.policy == "prefer_remote":
        return replace(remote, reason="policy prefer_remote")
    if best.seconds < course.local_seconds():
        return replace(remote, reason=f"{best.seconds:.3f} s predicted, against {course.local_seconds():.3f} s locally")
    reason = f"{course.local_seconds():.3f} s predicted, against {best.seconds:.3f} s from {best.node}"
    return replace(stay, reason=reason, predicted_seconds=predicted)


@dataclass(frozen=True)
class _Offer:
    kind: Kind
    node: str
    blocks: int
    seconds: float


@dataclass(frozen=True)
class _Course:
    layout: KvLayout
    prompt_tokens: int
    local: Local

    @property
    def most_blocks(self) -> int:
        return self.layout.resumable_blocks(self.prompt_tokens)

    @property
    def own_blocks(self) -> int:
        return min(self.local.resume_blocks, self.most_blocks)

    @property
    def missing_tokens(self) -> int:
        return (self.most_blocks - self.own_blocks) * self.layout.block_tokens

    def offers(self, peer: Candidate) -> Iterable[_Offer]:
        """What `peer` could do: hand over what it holds, compute the rest, or nothing."""
        held = min(peer.resume_blocks, self.most_blocks)
        if held > self.own_blocks:
            yield _Offer("import", peer.node, held, self._import_seconds(peer, held))
        if peer.computes and held < self.most_blocks:
            yield _Offer("remote_compute", peer.node, self.most_blocks, self._compute_seconds(peer, held))

    def local_seconds(self) -> float:
        return self._finish_seconds(0.0, self.own_blocks)

    def _finish_seconds(self, arrival_seconds: float, blocks: int) -> float:
        """The whole of it, when `blocks` are there after `arrival_seconds`; running streams are stalled by the rest."""
        tokens = self.prompt_tokens - blocks * self.layout.block_tokens
        computing = tokens / (self.local.tokens_per_second or DEFAULT_TOKENS_PER_SECOND) * (1 + self.local.decoding)
        return max(arrival_seconds, self.local.queue_seconds) + computing

    def _transfer_seconds(self, peer: Candidate, blocks: int) -> float:
        wanted = (part for block, part in self.layout.needed(blocks) if block >= self.own_blocks)
        return sum(self.layout.parts[part].nbytes for part in wanted) / (
            peer.bytes_per_second or DEFAULT_BYTES_PER_SECOND
        )

    def _import_seconds(self, peer: Candidate, held: int) -> float:
        return self._finish_seconds(peer.rtt_seconds + self._transfer_seconds(peer, held), held)

    def _compute_seconds(self, peer: Candidate, held: int) -> float:
        tokens = (self.most_blocks - held) * self.layout.block_tokens
        computing = tokens / (peer.tokens_per_second or DEFAULT_TOKENS_PER_SECOND)
        transfer = self._transfer_seconds(peer, self.most_blocks)
        tail = transfer / (self.most_blocks - self.own_blocks)
        waiting = peer.rtt_seconds + peer.queue_seconds
        return self._finish_seconds(waiting + max(computing, transfer) + tail, self.most_blocks)


def _reason_to_stay(course: _Course, rules: Rules) -> str | None:
    if rules.demand == "local":
        return "demanded by a signed directive"
    if course.missing_tokens == 0:
        return "the head's own pool holds the whole prefix" if course.most_blocks else "shorter than one block"
    if rules.demand == "remote":
        return None
    if rules.policy == "local_only":
        return "policy local_only"
    if course.missing_tokens < rules.min_tokens:
        return f"only {course.missing_tokens} tokens are missing, fewer than min_tokens {rules.min_tokens}"
    return None


def _by_time(offer: _Offer) -> tuple[float, bool, str]:
    """The fastest first; at equal times rather what need not be computed."""
    return offer.seconds, offer.kind != "import", offer.node


__all__ = [
    "DEFAULT_BYTES_PER_SECOND",
    "DEFAULT_TOKENS_PER_SECOND",
    "Candidate",
    "Decision",
    "Demand",
    "Kind",
    "Local",
    "Policy",
    "Rules",
    "choose",
]
