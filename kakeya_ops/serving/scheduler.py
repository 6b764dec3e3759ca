"""Where a request's prefix is to come from: pure arithmetic over what was measured.

The prediction is the time to the first token. With n prompt tokens, of which the head's own pool holds h:

- *local*: wait for the head's queue, compute n - h tokens, and pay for every stream that is stalled meanwhile;
- *import* from a peer that holds p > h: a round trip, the bytes of p - h tokens, then the rest locally;
- *remote compute*: a round trip, the worker's queue, the slower of computing and transferring (they overlap, so only
  the last block's bytes come on top), then the rest locally. A worker computes from the end of what it holds itself:
  what the head holds spares it nothing but the transfer.

Prefill seconds follow each machine's measured curve over the prompt's length, since a token looks at all before it. A
peer that failed lately costs what is expected of it: with the probability that it fails again, the local prefill too.

The rest waits for the head's queue too, which shortens while the prefix is on its way. What was not measured counts as
the stated default, which is on the slow side for remote work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from kakeya_ops.engine.rate import PrefillCurve
from kakeya_ops.kv.layout import KvLayout, PartLayout

Kind = Literal["local", "import", "remote_compute"]
Policy = Literal["measured", "prefer_remote", "local_only"]
Demand = Literal["none", "local", "remote"]

DEFAULT_BYTES_PER_SECOND = 50e6
"""Of a link that was never measured: half of what gigabit Ethernet carries."""
DEFAULT_TOKENS_PER_SECOND = 50.0
"""Of a machine whose prefill was never measured."""
CLEARLY = 1.25
"""What is being computed anyway is waited for unless the head would be sooner by this factor."""
DEFAULT_CONTEXT_TOKENS = 8192
"""Up to which it is looked for a length from which a worker helps, where no context is given."""


@dataclass(frozen=True)
class Local:
    """The head itself: `resume_blocks` are in its own pool, `decoding` streams would be stalled by its prefill.

    `curve` has its measured speed by length; without one it is as fast as `tokens_per_second` everywhere.
    """

    resume_blocks: int
    tokens_per_second: float | None
    queue_seconds: float
    decoding: int
    curve: PrefillCurve | None = None


@dataclass(frozen=True)
class Candidate:
    """A healthy peer with the same cache identity. `computes` is false for cache peers.

    `curve` is as for `Local`. `overhead_seconds` are what its jobs took beyond computing, waiting and transferring;
    `doubt` is the probability, by its latest failures, that it does not deliver. With `under_way` it is computing this
    prefix already, for somebody who has left or who waits too.
    """

    node: str
    computes: bool
    resume_blocks: int
    tokens_per_second: float | None
    queue_seconds: float
    rtt_seconds: float
    bytes_per_second: float | None
    curve: PrefillCurve | None = None
    overhead_seconds: float = 0.0
    doubt: float = 0.0
    under_way: bool = False


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

    @property
    def own_prediction(self) -> float:
        """The seconds that were predicted for what was decided."""
        return self.predicted_seconds[f"{self.kind} {self.node}" if self.node else "local"]


def choose(layout: KvLayout, prompt_tokens: int, local: Local, peers: Iterable[Candidate], rules: Rules) -> Decision:
    """Choose where the prefix of a prompt of `prompt_tokens` tokens comes from. Pure and deterministic."""
    course = _Course(layout, prompt_tokens, local)
    stay = Decision("local", None, course.own_blocks, "", {"local": course.local_seconds()})
    if reason := _reason_to_stay(course, rules):
        return replace(stay, reason=reason, settled=True)
    offers = sorted((offer for peer in peers for offer in course.offers(peer)), key=_by_cost)
    if not offers:
        return replace(stay, reason="no healthy peer with the same cache identity can help")
    best = offers[0]
    predicted = {"local": course.local_seconds()} | {f"{o.kind} {o.node}": o.seconds for o in reversed(offers)}
    remote = Decision(best.kind, best.node, best.blocks, "", predicted)
    if rules.demand == "remote":
        return replace(remote, reason="demanded by a signed directive")
    if rules.policy == "prefer_remote":
        return replace(remote, reason="policy prefer_remote")
    if best.cost_seconds < course.local_seconds():
        return replace(remote, reason=f"{best.seconds:.3f} s predicted, against {course.local_seconds():.3f} s locally")
    lately = " which failed lately" if best.cost_seconds > best.seconds else ""
    reason = f"{course.local_seconds():.3f} s predicted, against {best.seconds:.3f} s from {best.node}{lately}"
    return replace(stay, reason=reason, predicted_seconds=predicted)


def local_seconds(layout: KvLayout, prompt_tokens: int, local: Local) -> float:
    """How long the head would take from now on, by itself, to the first token."""
    return _Course(layout, prompt_tokens, local).local_seconds()


def crossover_tokens(
    layout: KvLayout, local: Local, peer: Candidate, rules: Rules, *, context_tokens: int = DEFAULT_CONTEXT_TOKENS
) -> int | None:
    """The shortest cold prompt, in whole blocks, whose first token is predicted to be earlier with `peer` computing.

    None if there is none up to `context_tokens`, if `peer` computes nothing, or under the policy ``local_only``.
    Prompts that `rules` call too short are never remote. Queues and doubts count as they are given.
    """
    if not peer.computes or rules.policy == "local_only":
        return None
    size = layout.block_tokens
    alone, cold = replace(local, resume_blocks=0), replace(peer, resume_blocks=0)
    for blocks in range(max(-(-rules.min_tokens // size), 1), context_tokens // size + 1):
        course = _Course(layout, blocks * size + 1, alone)
        if course.compute_offer(cold).cost_seconds < course.local_seconds():
            return blocks * size
    return None


@dataclass(frozen=True)
class _Offer:
    """`cost_seconds` is what is to be expected of it, failures included."""

    kind: Kind
    node: str
    blocks: int
    seconds: float
    cost_seconds: float


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
        if held > self.own_blocks and not (peer.under_way and held < self.most_blocks):
            yield self._offer("import", peer, held, self._import_seconds(peer, held))
        if peer.computes and held < self.most_blocks:
            yield self.compute_offer(peer)

    def compute_offer(self, peer: Candidate) -> _Offer:
        held = min(peer.resume_blocks, self.most_blocks)
        return self._offer("remote_compute", peer, self.most_blocks, self._compute_seconds(peer, held))

    def local_seconds(self) -> float:
        return self._finish_seconds(0.0, self.own_blocks)

    def _offer(self, kind: Kind, peer: Candidate, blocks: int, seconds: float) -> _Offer:
        cost_seconds = seconds + peer.doubt * self.local_seconds()
        return _Offer(kind, peer.node, blocks, seconds, cost_seconds / (CLEARLY if peer.under_way else 1.0))

    def _finish_seconds(self, arrival_seconds: float, blocks: int) -> float:
        """The whole of it, when `blocks` are there after `arrival_seconds`; running streams are stalled by the rest."""
        computing = _prefill_seconds(self.local, blocks * self.layout.block_tokens, self.prompt_tokens)
        return max(arrival_seconds, self.local.queue_seconds) + computing * (1 + self.local.decoding)

    def _transfer_seconds(self, peer: Candidate, blocks: int) -> float:
        nbytes = sum(part.nbytes * self._wanted(part, blocks) for part in self.layout.parts)
        return nbytes / (peer.bytes_per_second or DEFAULT_BYTES_PER_SECOND)

    def _wanted(self, part: PartLayout, blocks: int) -> int:
        """How many payloads of `part` the head lacks to resume after `blocks` blocks."""
        spans = part.needed_spans(blocks, self.layout.block_tokens)
        return sum(max(span.stop - max(span.start, self.own_blocks), 0) for span in spans)

    def _import_seconds(self, peer: Candidate, held: int) -> float:
        arrival_seconds = peer.rtt_seconds + peer.overhead_seconds + self._transfer_seconds(peer, held)
        return self._finish_seconds(arrival_seconds, held)

    def _compute_seconds(self, peer: Candidate, held: int) -> float:
        size = self.layout.block_tokens
        computing = _prefill_seconds(peer, held * size, self.most_blocks * size)
        transfer = self._transfer_seconds(peer, self.most_blocks)
        tail = transfer / (self.most_blocks - self.own_blocks)
        waiting = peer.rtt_seconds + peer.overhead_seconds + peer.queue_seconds
        return self._finish_seconds(waiting + max(computing, transfer) + tail, self.most_blocks)


def _prefill_seconds(machine: Local | Candidate, start: int, end: int) -> float:
    curve = machine.curve or PrefillCurve(1 / (machine.tokens_per_second or DEFAULT_TOKENS_PER_SECOND))
    return curve.seconds(start, end)


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


def _by_cost(offer: _Offer) -> tuple[float, bool, str]:
    """The cheapest first; at equal costs rather what need not be computed."""
    return offer.cost_seconds, offer.kind != "import", offer.node


__all__ = [
    "CLEARLY",
    "DEFAULT_BYTES_PER_SECOND",
    "DEFAULT_CONTEXT_TOKENS",
    "DEFAULT_TOKENS_PER_SECOND",
    "Candidate",
    "Decision",
    "Demand",
    "Kind",
    "Local",
    "Policy",
    "Rules",
    "choose",
    "crossover_tokens",
    "local_seconds",
]
