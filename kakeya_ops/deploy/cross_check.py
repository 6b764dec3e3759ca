"""The last step of a deploy: every head against every other node, over their real endpoints, in both directions.

What is proved: a request that the head's host signs reaches the node and is answered in kind, the same the other way
round, the two cards are compatible, the two *processes* know each other, and each of them has reached the other itself,
which neither a request from the host can show (macOS judges a process by who started it) nor a card, which either may
have brought. What cannot be asked is said to be unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, TypeVar

from kakeya_ops.deploy.hosts import PARALLEL, Hosts
from kakeya_ops.deploy.own_connections import reached, read_own_connections
from kakeya_ops.errors import KakeyaError, PeerRefused, StreamCorrupt
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.observe.fanout import run_on
from kakeya_ops.observe.http import CURL, SECONDS, read_reply, signed_request
from kakeya_ops.observe.node import Asker, usable_endpoints
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.units import NodeId
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.cards import Card, CardsExchange
from kakeya_ops.wire.paths import CARD_PATH, CARDS_PATH

MEETING_SECONDS = 12.0
"""Nodes exchange cards every two seconds; this long is waited for those of two to arrive."""
_POLL_SECONDS = 0.3

Verdict = Literal["ok", "failed", "unknown"]
R = TypeVar("R", bound=WireBody)


@dataclass(frozen=True)
class Check:
    """One thing between a head and another node: what was looked at, the verdict, and what was found."""

    head: str
    node: str
    what: str
    verdict: Verdict
    found: str


@dataclass(frozen=True)
class CrossCheck:
    """Makes the checks. `clock` and `pause` are time's."""

    hosts: Hosts
    seconds: float = MEETING_SECONDS
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep

    def run(self, names: Iterable[str]) -> list[Check]:
        """The checks of every pair of a head and another node of which at least one is in `names`."""
        inventory, chosen = self.hosts.inventory, set(names)
        heads = [host.name for host in inventory.with_role("head")]
        others = [name for name in inventory.hosts if name not in heads]
        pairs = {f"{head} {node}": (head, node) for head, node in product(heads, others) if chosen & {head, node}}
        outcomes = run_on(pairs, lambda pair: self._pair(*pairs[pair]), PARALLEL)
        return [check for outcome in outcomes.values() if not isinstance(outcome, KakeyaError) for check in outcome]

    def _pair(self, head: str, node: str) -> list[Check]:
        """All checks of one pair, each with a verdict of its own."""
        call = (CARD_PATH, None)
        ours, theirs, back = (self._ask(a, b, Card, call) for a, b in ((head, head), (head, node), (node, head)))
        found: list[tuple[str, Verdict, str]] = [
            (f"signed request {head} -> {node}", *_answered(theirs)),
            (f"signed request {node} -> {head}", *_answered(back)),
            ("cache identity and runtime", *_compatible(ours, theirs)),
            ("the running nodes know each other", *self._acquainted(head, node, (ours, theirs))),
            (f"the process of {head} reaches {node}", *self._reaches(head, node, theirs)),
            (f"the process of {node} reaches {head}", *self._reaches(node, head, ours)),
        ]
        return [Check(head, node, *entry) for entry in found]

    def _acquainted(self, head: str, node: str, cards: tuple[Card | KakeyaError, ...]) -> tuple[Verdict, str]:
        if any(isinstance(card, KakeyaError) for card in cards):
            return "unknown", "one of the cards could not be had"
        deadline = self.clock() + self.seconds
        while True:
            strangers = [a for a, b in ((head, node), (node, head)) if not self._knows(a, b)]
            if not strangers:
                return "ok", "each holds the other's fresh card"
            if self.clock() > deadline:
                who = " and ".join(strangers)
                return "failed", f"{who} got no card of the other within {self.seconds:.0f} s"
            self.pause(_POLL_SECONDS)

    def _reaches(self, asking: str, asked: str, card: Card | KakeyaError) -> tuple[Verdict, str]:
        """Whether the process of `asking` holds a connection to an endpoint of `asked`, whose `card` shows it alive."""
        if isinstance(card, KakeyaError):
            return "unknown", f"{asked} itself could not be asked"
        endpoints = usable_endpoints(self._host(asked))
        deadline = self.clock() + self.seconds
        while True:
            try:
                label = self.hosts.places(asking).label
                way = reached(read_own_connections(self.hosts.runner(asking), label), endpoints)
            except KakeyaError as error:
                return "unknown", error.message
            if way is not None:
                return "ok", f"connected to {way.address}, port {way.port}"
            if self.clock() > deadline:
                return "failed", _unreached(asking, asked, endpoints)
            self.pause(_POLL_SECONDS)

    def _knows(self, node: str, other: str) -> bool:
        """Whether the running `node` holds a card of `other` that is no older than its present process."""
        body = CardsExchange(cards=()).encode()
        known = self._ask(node, node, CardsExchange, (CARDS_PATH, body))
        return isinstance(known, CardsExchange) and any(card.node == other for card in known.cards)

    def _ask(self, asking: str, asked: str, kind: type[R], call: tuple[str, bytes | None]) -> R | KakeyaError:
        """What the node on `asked` answers when the host of `asking` asks it, in that node's name."""
        asker = Asker(self.hosts.asker.key, self.hosts.asker.tenant, NodeId(asking))
        error: KakeyaError = PeerRefused(asked, 0, "no endpoint", "it has no endpoint for peers")
        for endpoint in usable_endpoints(self._host(asked)):
            request = signed_request(asker.signer, asker.key, asked, endpoint, call)
            try:
                result = self.hosts.runner(asking).run(CURL, input=request.config(), timeout_seconds=3 * SECONDS)
                return read_reply(request, kind, result.status, result.stdout)
            except KakeyaError as failure:
                error = failure
        return error

    def _host(self, name: str) -> ResolvedHost:
        return self.hosts.inventory.host(name)


def _unreached(asking: str, asked: str, endpoints: Sequence[Endpoint]) -> str:
    ways = " or ".join(f"{endpoint.address}, port {endpoint.port}" for endpoint in endpoints)
    return (
        f"the running process holds no connection to {ways}: was {asking} deployed since {asked} moved there? "
        "Does a firewall, or Local Network in the Mac's privacy settings, keep the service from it?"
    )


def _answered(answer: Card | KakeyaError) -> tuple[Verdict, str]:
    if isinstance(answer, Card):
        return "ok", "answered and signed"
    refused = isinstance(answer, PeerRefused | StreamCorrupt)
    return ("failed" if refused else "unknown"), answer.message


def _compatible(ours: Card | KakeyaError, theirs: Card | KakeyaError) -> tuple[Verdict, str]:
    if isinstance(ours, KakeyaError) or isinstance(theirs, KakeyaError):
        return "unknown", "one of the cards could not be had"
    if ours.identity_document is None or ours.runtime is None:
        return "unknown", "the head's card says nothing of its cache identity"
    try:
        identity, runtime = CacheIdentity.from_json(ours.identity_document), Runtime.from_json(ours.runtime)
    except (KeyError, TypeError, ValueError):
        return "unknown", "the head's identity document cannot be read"
    difference = find_difference(theirs, identity, runtime)
    if difference is None:
        return "ok", identity.digest[:12]
    said = difference.to_json()
    return "failed", f"differs in {said['field']}: {said['ours']} at the head, {said['theirs']} there"


__all__ = ["MEETING_SECONDS", "Check", "CrossCheck"]
