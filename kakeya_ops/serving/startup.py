"""From an inventory to a node that is being served: what all roles have in common."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp

from kakeya_ops.certificates import Certificates, read_certificates
from kakeya_ops.certificates.material import HINT
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.inventory.sections import Endpoint as InventoryEndpoint
from kakeya_ops.secret import Secret, read_fleet_keys
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.server import Site, address_of, bind
from kakeya_ops.serving.tls_protocol import TlsDoor
from kakeya_ops.settings import expand_here
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import Endpoint, Role

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Startup:
    """One host of the inventory about to be served, its peer port bound already."""

    inventory: Inventory
    host: ResolvedHost
    settings: NodeSettings
    sockets: Sequence[socket.socket]
    tls_sockets: Sequence[socket.socket] = ()
    """Those among `sockets` that speak nothing but TLS."""

    def peer_sites(self, app: ASGIApp, counters: Counters) -> list[Site]:
        """What serves `app` to the node's peers, in clear and by TLS; `counters` are the node's."""
        clear = [listener for listener in self.sockets if listener not in self.tls_sockets]
        sites = [Site("peers", app, clear)]
        certificates = self.settings.certificates
        if certificates is not None and self.tls_sockets:

            def count(reason: str) -> None:
                counters.add(CounterName.CONNECTIONS_REFUSED, reason=reason)

            sites.append(Site("peers by TLS", app, self.tls_sockets, tls=TlsDoor(certificates.server, count)))
        return sites

    @property
    def addresses(self) -> str:
        """Where it listens, for people."""
        return ", ".join("{}:{}".format(*address_of(listener)) for listener in self.sockets)


def start_up(inventory: Inventory, name: str | None, role: Role) -> Startup:
    """Get ready to serve the host called `name`; without a name the only one with `role`.

    Nothing slow is done, so that what is wrong is told at once: raises `InputError` or `EnvironmentFault`.
    """
    host = _choose_host(inventory, name, role)
    keys = _read_keys(inventory, host)
    certificates = _read_certificates(inventory)
    usable = _usable(host, certificates)
    endpoints = tuple(Endpoint(**end.model_dump(), tls=not end.in_clear) for end in usable)
    fleet = inventory.fleet
    settings = NodeSettings(NodeId(host.name), role, fleet.tenant, keys, endpoints, certificates, fleet.drill)
    sockets = _bind_endpoints(usable)
    tls = [listener for listener, in_clear in sockets.items() if not in_clear]
    return Startup(inventory, host, settings, tuple(sockets), tls)


@contextlib.contextmanager
def exchanging(node: Node, inventory: Inventory) -> Iterator[Exchange]:
    """Within it cards are exchanged with every host of the inventory, and the node is announced if that is wanted."""
    exchange = Exchange(node, {NodeId(name): inventory.host(name).endpoints for name in inventory.hosts})
    exchange.start()
    try:
        with _announcing(node) if inventory.host(node.id).announce else contextlib.nullcontext():
            yield exchange
    finally:
        exchange.stop()


def _announcing(node: Node) -> contextlib.AbstractContextManager[None]:
    from kakeya_ops.serving.announcing import announcing  # its library is only there for this

    return announcing(node)


def _choose_host(inventory: Inventory, name: str | None, role: Role) -> ResolvedHost:
    if name is None:
        hosts = inventory.with_role(role)
        if len(hosts) != 1:
            names = ", ".join(host.name for host in hosts) or "none"
            raise InputError(f"the inventory has {len(hosts)} hosts with the role {role}: {names}", hint="name one")
        return hosts[0]
    host = inventory.host(name)
    if host.role != role:
        raise InputError(f"{name} is a {host.role}, not a {role}", hint=f"run: kakeya serve {host.role} {name}")
    return host


def _read_keys(inventory: Inventory, host: ResolvedHost) -> tuple[Secret, ...]:
    if inventory.fleet.key_file is not None:
        return read_fleet_keys(expand_here(inventory.fleet.key_file))
    for endpoint in host.endpoints:
        if not is_loopback(endpoint.address):
            raise InputError(
                f"{host.name} would listen on {endpoint.address} without a fleet key, open to everybody there",
                hint="set fleet.key_file; a fleet without a key is possible on loopback only",
            )
    return ()


def _read_certificates(inventory: Inventory) -> Certificates | None:
    """This node's, if the fleet has any. Raises `InputError` for those that cannot be used."""
    key_file = inventory.fleet.key_file
    return read_certificates(expand_here(key_file)) if key_file and inventory.needs_tls else None


def _bind_endpoints(usable: Sequence[InventoryEndpoint]) -> dict[socket.socket, bool]:
    """A socket for each endpoint, and whether it speaks clear text; one whose address is not up is left out if others
    are."""
    sockets: dict[socket.socket, bool] = {}
    absent: EnvironmentFault | None = None
    places = {(endpoint.address, endpoint.port): endpoint.in_clear for endpoint in usable}
    for (address, port), in_clear in places.items():
        try:
            sockets[bind(address, port)] = in_clear
        except EnvironmentFault as error:
            if not _is_absent(error):
                for listener in sockets:
                    listener.close()
                raise
            _logger.warning("%s", error.message)
            absent = error
    if not sockets and absent is not None:
        raise absent
    return sockets


def _usable(host: ResolvedHost, certificates: Certificates | None) -> list[InventoryEndpoint]:
    """The endpoints that can be served: without certificates, those that may carry clear text."""
    usable = [endpoint for endpoint in host.endpoints if endpoint.in_clear or certificates is not None]
    if host.endpoints and not usable:
        raise InputError(
            f"none of the endpoints of {host.name} may carry KV in clear, and there is no certificate for TLS: "
            "they are neither trusted nor loopback",
            hint=f"{HINT}; or set trusted: true on a network that nobody else can listen on, such as a cable",
        )
    for endpoint in host.endpoints:
        if endpoint not in usable:
            _logger.warning("%s port %d is not served: there is no certificate", endpoint.address, endpoint.port)
    return usable


def _is_absent(error: EnvironmentFault) -> bool:
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) or (isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL)


__all__ = ["Startup", "exchanging", "start_up"]
