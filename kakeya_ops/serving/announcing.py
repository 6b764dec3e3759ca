"""Announces a node on the local network through Bonjour, where the inventory allows it."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address

import psutil
from zeroconf import ServiceInfo, Zeroconf

from kakeya_ops.serving.presence import Presence

TYPE = "_kakeya._tcp.local."

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def announcing(node: Presence, interfaces: Sequence[str] | None = None) -> Iterator[None]:
    """The node is announced within it: its id, role and port, and nothing of the fleet.

    That it cannot be announced is a line in the log, and no more. `interfaces` are the addresses to speak at, None for
    all.
    """
    try:
        zeroconf = Zeroconf(interfaces=list(interfaces)) if interfaces else Zeroconf()
        zeroconf.register_service(_describe(node), allow_name_change=True)
    except Exception as error:  # noqa: BLE001 - whatever the network does: to be announced is a convenience
        _logger.warning("not announced on the local network: %s", error)
        yield
        return
    try:
        yield
    finally:
        zeroconf.close()


def _describe(node: Presence) -> ServiceInfo:
    endpoints = node.settings.endpoints
    said = [one.address for one in endpoints if _is_ipv4(one.address)] or _own_addresses()
    return ServiceInfo(
        TYPE,
        f"{node.id}.{TYPE}",
        port=endpoints[0].port if endpoints else 0,
        addresses=[IPv4Address(address).packed for address in said],
        properties={"role": node.role},
        server=f"{socket.gethostname().partition('.')[0]}.local.",
    )


def _own_addresses() -> list[str]:
    """Those of this machine, for a node whose endpoints have names."""
    every = [one.address for found in psutil.net_if_addrs().values() for one in found if one.family == socket.AF_INET]
    return [address for address in every if not IPv4Address(address).is_loopback] or every


def _is_ipv4(address: str) -> bool:
    try:
        IPv4Address(address)
    except ValueError:
        return False
    return True


__all__ = ["TYPE", "announcing"]
