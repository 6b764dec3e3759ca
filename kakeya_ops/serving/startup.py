"""From an inventory to a node that is being served: what all roles have in common."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.inventory.sections import Endpoint as InventoryEndpoint
from kakeya_ops.secret import Secret, read_fleet_keys
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.server import address_of, bind
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
    endpoints = tuple(Endpoint(**endpoint.model_dump()) for endpoint in host.endpoints)
    settings = NodeSettings(NodeId(host.name), role, inventory.fleet.tenant, keys, endpoints)
    return Startup(inventory, host, settings, _bind_endpoints(host))


@contextlib.contextmanager
def exchanging(node: Node, inventory: Inventory) -> Iterator[Exchange]:
    """Cards are exchanged with every host of the inventory within it."""
    exchange = Exchange(node, {NodeId(name): inventory.host(name).endpoints for name in inventory.hosts})
    exchange.start()
    try:
        yield exchange
    finally:
        exchange.stop()


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


def _bind_endpoints(host: ResolvedHost) -> list[socket.socket]:
    """A socket for each endpoint that may carry KV in clear; one whose address is not up is left out if others are."""
    usable = _usable(host)
    sockets: list[socket.socket] = []
    absent: EnvironmentFault | None = None
    for address, port in dict.fromkeys((endpoint.address, endpoint.port) for endpoint in usable):
        try:
            sockets.append(bind(address, port))
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


def _usable(host: ResolvedHost) -> list[InventoryEndpoint]:
    usable = [endpoint for endpoint in host.endpoints if endpoint.in_clear]
    if host.endpoints and not usable:
        raise InputError(
            f"none of the endpoints of {host.name} may carry KV: they are neither trusted nor loopback",
            hint="set trusted: true on a network that nobody else can listen on, such as a cable between two Macs",
        )
    return usable


def _is_absent(error: EnvironmentFault) -> bool:
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) or (isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL)


__all__ = ["Startup", "exchanging", "start_up"]
