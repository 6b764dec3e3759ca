"""The last step of a deploy: every head against every other node, over their real endpoints, in both directions.

What is proved: a request that the head's host signs reaches the node and is answered in kind, the same the other way
round, the two cards are compatible, the two *processes* know each other, and each of them has reached the other itself,
which neither a request from the host can show (macOS judges a process by who started it) nor a card, which either may
have brought. What cannot be asked is said to be unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from kakeya_ops.deploy.hosts import PARALLEL, Hosts
from kakeya_ops.deploy.sight import Sight, look_around
from kakeya_ops.errors import KakeyaError, PeerRefused, StreamCorrupt
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.observe.fanout import run_on
from kakeya_ops.observe.node import usable_endpoints
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.wire.cards import Card

MEETING_SECONDS = 12.0
"""Nodes exchange cards every two seconds; this long is waited for those of two to arrive."""
_POLL_SECONDS = 0.3

Verdict = Literal["ok", "failed", "unknown"]


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
        pairs = [(head, node) for head, node in product(heads, others) if chosen & {head, node}]
        found = self._meet(_asked_of(pairs))
        return [check for pair in pairs for check in _judge(pair, found, self._unreached)]

    def _meet(self, asked: Mapping[str, tuple[str, ...]]) -> dict[str, Sight]:
        """What each host sees of the others that it is `asked` about, once they have met or the time is over."""
        deadline = self.clock() + self.seconds
        found: dict[str, Sight] = {}
        left = tuple(asked)
        while True:
            looks = run_on(left, lambda name: look_around(self.hosts, name, asked[name]), PARALLEL)
            for name, sight in looks.items():
                found[name] = Sight.blind(sight, asked[name]) if isinstance(sight, KakeyaError) else sight
            left = tuple(name for name in left if found[name].waits)
            if not left or self.clock() > deadline:
                return found
            self.pause(_POLL_SECONDS)

    def _unreached(self, asking: str, asked: str) -> str:
        endpoints = usable_endpoints(self.hosts.inventory.host(asked))
        ways = " or ".join(f"{endpoint.address}, port {endpoint.port}" for endpoint in endpoints)
        return (
            f"the running process holds no connection to {ways}: was {asking} deployed since {asked} moved there? "
            "Does a firewall, or Local Network in the Mac's privacy settings, keep the service from it?"
        )


def _asked_of(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The others that each host is asked about."""
    asked: dict[str, tuple[str, ...]] = {}
    for head, node in pairs:
        asked[head] = (*asked.get(head, ()), node)
        asked[node] = (*asked.get(node, ()), head)
    return asked


def _judge(pair: tuple[str, str], found: Mapping[str, Sight], unreached: Callable[[str, str], str]) -> list[Check]:
    """All checks of one pair, each with a verdict of its own."""
    head, node = pair
    ours, theirs = found[head], found[node]
    there, back = ours.cards[node], theirs.cards[head]
    entries: list[tuple[str, Verdict, str]] = [
        (f"signed request {head} -> {node}", *_answered(there)),
        (f"signed request {node} -> {head}", *_answered(back)),
        ("cache identity and runtime", *_compatible(ours.own, there)),
        ("the running nodes know each other", *_acquainted(pair, found)),
        (f"the process of {head} reaches {node}", *_reaches(ours, node, there, unreached(head, node))),
        (f"the process of {node} reaches {head}", *_reaches(theirs, head, ours.own, unreached(node, head))),
    ]
    return [Check(head, node, *entry) for entry in entries]


def _acquainted(pair: tuple[str, str], found: Mapping[str, Sight]) -> tuple[Verdict, str]:
    head, node = pair
    if isinstance(found[head].own, KakeyaError) or isinstance(found[head].cards[node], KakeyaError):
        return "unknown", "one of the cards could not be had"
    strangers = [a for a, b in (pair, pair[::-1]) if b not in found[a].known]
    if not strangers:
        return "ok", "each holds the other's fresh card"
    return "failed", f"{' and '.join(strangers)} got no card of the other in time"


def _reaches(sight: Sight, asked: str, card: Card | KakeyaError, unreached: str) -> tuple[Verdict, str]:
    """Whether the process there holds a connection to an endpoint of `asked`, whose `card` shows it alive."""
    if isinstance(card, KakeyaError):
        return "unknown", f"{asked} itself could not be asked"
    if isinstance(sight.reached, KakeyaError):
        return "unknown", sight.reached.message
    way = sight.reached.get(asked)
    return ("failed", unreached) if way is None else ("ok", f"connected to {way.address}, port {way.port}")


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
