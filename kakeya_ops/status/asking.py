"""Asking one node, and one head's API: plain HTTP from here, every wait bounded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_ops.certificates import Certificates
from kakeya_ops.errors import KakeyaError, PeerError, PeerRefused, PeerUnreachable
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.inventory.fields import is_unspecified
from kakeya_ops.inventory.sections import Endpoint as InventoryEndpoint
from kakeya_ops.observe.node import usable_endpoints
from kakeya_ops.observe.state import Health
from kakeya_ops.peer.connection import Call, Connections, Endpoint, StopFlag, Timeouts, translated
from kakeya_ops.peer.signed import Caller, SignedCalls
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import Card, CardsExchange
from kakeya_ops.wire.paths import CARDS_PATH

TIMEOUTS = Timeouts(connect_seconds=1.5, reply_seconds=3.0, silence_seconds=3.0)
"""A node answers in milliseconds whatever its engine does; longer than this is no answer to somebody who watches."""
_MOST_BYTES = 4 * 1024 * 1024
NODES_PATH = "/v1/network/nodes"
SUMMARY_PATH = "/v1/network/summary"


@dataclass(frozen=True)
class PeerAnswer:
    """What a node said on its peer port. `known` are the cards it knows of others; without a card, `fault` says why."""

    health: Health
    card: Card | None
    known: tuple[Card, ...] = ()
    fault: str | None = None


@dataclass(frozen=True)
class ApiAnswer:
    """What a head said on its API port."""

    head: Mapping[str, Any]
    nodes: Mapping[str, Mapping[str, Any]]
    conflicts: tuple[str, ...]
    summary: Mapping[str, Any]


class NoWay(PeerUnreachable):
    """No way from here leads to the node's machine, which says nothing of the node."""


class NodeDoor:
    """One node's peer port. For one thread at a time; `stop` breaks off what is under way."""

    def __init__(self, host: ResolvedHost, caller: Caller, stop: StopFlag) -> None:
        self._name = host.name
        self._stop = stop
        self._ways = [_Way(host.name, end, caller) for end in usable_endpoints(host)]

    def ask(self) -> PeerAnswer:
        """What it says by the first of its endpoints that works. Raises `NoWay`, or another `PeerError`."""
        errors: list[PeerError] = []
        for way in tuple(self._ways):
            try:
                answer = way.ask(self._stop)
            except PeerError as error:
                errors.append(error)
                continue
            self._ways.sort(key=lambda one: one is not way)
            return answer
        failure = _together(self._name, errors, "it has no endpoint for peers that may be used in clear text")
        raise failure if any(map(_met_the_machine, errors)) else NoWay(self._name, plain(self._name, failure))

    def close(self) -> None:
        """Close the connections."""
        for way in self._ways:
            way.close()


class _Way:
    def __init__(self, name: str, endpoint: InventoryEndpoint, caller: Caller) -> None:
        here = Endpoint(endpoint.address, endpoint.port, endpoint.network, in_clear=endpoint.in_clear)
        self._name = name
        self._open = OpenDoor(name, here, caller.certificates)
        self._signed = SignedCalls(NodeId(name), here, caller, TIMEOUTS)

    def ask(self, stop: StopFlag) -> PeerAnswer:
        health = self._health(stop)
        try:
            known = self._signed.ask("POST", CARDS_PATH, CardsExchange(cards=()).encode(), CardsExchange, stop)
            known.check(self._name)
        except PeerError as error:
            return PeerAnswer(health, None, fault=plain(self._name, error))
        own = next((card for card in known.cards if card.node == self._name), None)
        return PeerAnswer(health, own, tuple(card for card in known.cards if card is not own))

    def _health(self, stop: StopFlag) -> Health:
        status, document = self._open.get("/healthz", {}, stop)
        if document.get("node") != self._name:
            said = f"another node, {str(document.get('node'))[:60]!r}, answers at {self._open.endpoint}"
            raise PeerRefused(self._name, status, "wrong node", said)
        return Health(status == 200, None if status == 200 else str(document.get("reason")))

    def close(self) -> None:
        self._open.close()
        self._signed.close()


class OpenDoor:
    """Unsigned GETs of small JSON documents at one endpoint."""

    def __init__(self, name: str, endpoint: Endpoint, certificates: Certificates | None = None) -> None:
        self.endpoint = endpoint
        self._name = name
        self._connections = Connections(name, endpoint, TIMEOUTS, certificates)

    def get(self, path: str, headers: Mapping[str, str], stop: StopFlag) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of the answer. Raises `PeerError`."""
        call = Call("GET", path, lambda: headers, lambda sent: b"", TIMEOUTS.reply_seconds)
        with self._connections.call(call, stop) as answer:
            with translated(self._name, stop):
                data = answer.response.read(_MOST_BYTES)
            return answer.response.status, read_document(self._name, answer.response.status, data)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()


class ApiDoor:
    """A head's API from here; `headers` carry its key."""

    def __init__(self, host: ResolvedHost, endpoints: Sequence[Endpoint], headers: Mapping[str, str]) -> None:
        self._name = host.name
        self._headers = headers
        self._doors = [OpenDoor(host.name, endpoint) for endpoint in endpoints]

    def ask(self, stop: StopFlag) -> ApiAnswer:
        """What the head says there. Raises `PeerError`, also when it is another head that answers."""
        errors: list[PeerError] = []
        for door in self._doors:
            try:
                documents = [self._get(door, path, stop) for path in (NODES_PATH, SUMMARY_PATH)]
                return read_api(self._name, *documents)
            except PeerError as error:
                errors.append(error)
        raise _together(self._name, errors, "its API has no address")

    def _get(self, door: OpenDoor, path: str, stop: StopFlag) -> dict[str, Any]:
        status, document = door.get(path, self._headers, stop)
        return accept(self._name, status, document)

    def close(self) -> None:
        """Close the connections."""
        for door in self._doors:
            door.close()


def api_endpoints(host: ResolvedHost) -> tuple[Endpoint, ...]:
    """Where the API of a head may be found from here: where it is bound, or else where peers reach the host."""
    if host.api is None:
        return ()
    port = host.api.port
    if not is_unspecified(host.api.bind):
        return (Endpoint(host.api.bind, port, "api", in_clear=True),)
    addresses = [end.address for end in usable_endpoints(host) if end.in_clear] or [host.ssh_host]
    return tuple(Endpoint(address, port, "api", in_clear=True) for address in dict.fromkeys(addresses))


def _together(name: str, errors: Sequence[PeerError], none: str) -> PeerError:
    """One error for all ways that were tried; `none` is said where there was no way."""
    if len(errors) == 1:
        return errors[0]
    said = "; ".join(dict.fromkeys(plain(name, error) for error in errors))
    return PeerUnreachable(name, said or none)


def _met_the_machine(error: PeerError) -> bool:
    """Whether something at the address said no, or nothing, after it was reached."""
    return not isinstance(error, PeerUnreachable) or isinstance(error.__cause__, ConnectionError)


def plain(name: str, error: Exception) -> str:
    """What went wrong, without the node's name in front."""
    if isinstance(error, KakeyaError):
        return error.message.removeprefix(f"{name}: ")
    return f"asking it failed in a way it should not: {type(error).__name__}: {error}"


def read_document(name: str, status: int, data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises `PeerRefused` where it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise PeerRefused(name, status, "malformed", f"something else answers there, with HTTP status {status}")
    return document


def accept(name: str, status: int, document: dict[str, Any]) -> dict[str, Any]:
    """`document`, which an API answered with `status`. Raises `PeerRefused` for an error."""
    if status == 401:
        raise PeerRefused(name, status, "unauthorized", "its API asks for a key: give --api-key-file")
    if status != 200:
        error = document.get("error")
        said = error.get("message") if isinstance(error, dict) else None
        raise PeerRefused(name, status, "error", f"its API answered with HTTP status {status}: {str(said)[:200]}")
    return document


def read_api(name: str, network: dict[str, Any], summary: dict[str, Any]) -> ApiAnswer:
    """The two documents as one answer of the head called `name`. Raises `PeerRefused` where they are not its."""
    head, nodes = network.get("head"), network.get("nodes")
    if not isinstance(head, dict) or not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise PeerRefused(name, 200, "malformed", "its API's answer lacks the head or the nodes")
    if head.get("node") != name:
        said = f"another head, {str(head.get('node'))[:60]!r}, answers at the address of its API"
        raise PeerRefused(name, 200, "wrong node", said)
    conflicts = tuple(str(one) for one in network.get("conflicts") or ())
    return ApiAnswer(head, {str(node.get("node")): node for node in nodes}, conflicts, summary)


__all__ = [
    "NODES_PATH",
    "SUMMARY_PATH",
    "TIMEOUTS",
    "ApiAnswer",
    "ApiDoor",
    "NoWay",
    "NodeDoor",
    "OpenDoor",
    "PeerAnswer",
    "accept",
    "api_endpoints",
    "plain",
    "read_api",
    "read_document",
]
