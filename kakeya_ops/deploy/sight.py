"""What one host and its node see of others, in one call: cards over the real endpoints, acquaintances, connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kakeya_ops.deploy.batch import Call, run_all
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.own_connections import list_call, parse_listing, reached
from kakeya_ops.errors import KakeyaError, PeerRefused
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.http import CURL, SECONDS, HttpRequest, read_reply, signed_request
from kakeya_ops.observe.node import Asker, usable_endpoints
from kakeya_ops.remote.runner import Result, Runner
from kakeya_ops.units import NodeId
from kakeya_ops.wire.body import WireBody
from kakeya_ops.wire.cards import Card, CardsExchange
from kakeya_ops.wire.paths import CARD_PATH, CARDS_PATH

_CALL_SECONDS = 3.0 * SECONDS
R = TypeVar("R", bound=WireBody)


@dataclass(frozen=True)
class Sight:
    """What a host sees; each thing that cannot be had is the error that says why.

    `own` is its own node's card, `cards` those of the others as it gets them itself, `known` the nodes whose cards its
    running node holds, no older than their present processes, and `reached` the endpoint of each other node that the
    process itself holds a connection to.
    """

    own: Card | KakeyaError
    cards: Mapping[str, Card | KakeyaError]
    known: frozenset[str] = frozenset()
    reached: Mapping[str, Endpoint] | KakeyaError = field(default_factory=dict)

    @classmethod
    def blind(cls, error: KakeyaError, others: Sequence[str]) -> Sight:
        """That of a host that cannot be asked."""
        return cls(error, dict.fromkeys(others, error), frozenset(), error)

    @property
    def waits(self) -> bool:
        """Whether time may show more: a node that answers is not known to the one here yet, or not reached by it."""
        there = {name for name, card in self.cards.items() if isinstance(card, Card)}
        missing = set() if isinstance(self.reached, KakeyaError) else there - set(self.reached)
        return isinstance(self.own, Card) and bool(missing | (there - self.known))


def look_around(hosts: Hosts, name: str, others: Sequence[str]) -> Sight:
    """What the host called `name` and its node see of `others`. Raises `RemoteError` when the host cannot be asked."""
    runner = hosts.runner(name)
    asked = _Asked(hosts, name)
    nodes = (name, *others)
    requests = [asked.request(node, number=0) for node in nodes]
    known = asked.request(name, number=0, call=(CARDS_PATH, CardsExchange(cards=()).encode()))
    key_file = hosts.places(name).key
    calls = [Call(CURL, request.config(key_file)) for request in (*requests, known) if request is not None]
    calls.append(Call(list_call(hosts.places(name).label)))
    *replies, listed = run_all(runner, calls, _CALL_SECONDS * len(calls))
    answers = iter(replies)
    cards = {
        node: asked.card(runner, node, None if request is None else (request, next(answers)))
        for node, request in zip(nodes, requests, strict=True)
    }
    book = _read(known, next(answers), CardsExchange) if known is not None else None
    return Sight(
        own=cards.pop(name),
        cards=cards,
        known=frozenset(str(card.node) for card in book.cards) if isinstance(book, CardsExchange) else frozenset(),
        reached=_reached(hosts, name, others, listed),
    )


@dataclass(frozen=True)
class _Asked:
    """Makes requests in the name of the node called `name`."""

    hosts: Hosts
    name: str

    def request(
        self, node: str, *, number: int, call: tuple[str, bytes | None] = (CARD_PATH, None)
    ) -> HttpRequest | None:
        """A request to the node's endpoint of that number, the preferred one first; None where it has none."""
        endpoints = self._endpoints(node)
        if number >= len(endpoints):
            return None
        asker = Asker(self.hosts.asker.key, self.hosts.asker.tenant, NodeId(self.name))
        return signed_request(asker.signer, asker.key, node, endpoints[number], call)

    def card(self, runner: Runner, node: str, first: tuple[HttpRequest, Result] | None) -> Card | KakeyaError:
        """The card in the `first` reply, or else at the node's other endpoints."""
        if first is None:
            return PeerRefused(node, 0, "no endpoint", "it has no endpoint for peers")
        answer = _read(*first, Card)
        for number in range(1, len(self._endpoints(node))):
            if isinstance(answer, Card):
                break
            request = self.request(node, number=number)
            assert request is not None
            result = runner.run(
                CURL, input=request.config(self.hosts.places(self.name).key), timeout_seconds=_CALL_SECONDS
            )
            answer = _read(request, result, Card)
        return answer

    def _endpoints(self, node: str) -> list[Endpoint]:
        return usable_endpoints(self.hosts.inventory.host(node))


def _reached(hosts: Hosts, name: str, others: Sequence[str], listed: Result) -> Mapping[str, Endpoint] | KakeyaError:
    try:
        connections = parse_listing(name, listed.stdout)
    except KakeyaError as error:
        return error
    ways = {other: reached(connections, usable_endpoints(hosts.inventory.host(other))) for other in others}
    return {other: way for other, way in ways.items() if way is not None}


def _read(request: HttpRequest, result: Result, kind: type[R]) -> R | KakeyaError:
    try:
        return read_reply(request, kind, result.status, result.stdout)
    except KakeyaError as error:
        return error


__all__ = ["Sight", "look_around"]
