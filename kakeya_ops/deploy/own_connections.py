"""Whom the process of a service itself has reached, by what its host's kernel knows.

A request that is made over SSH proves nothing for the service: macOS lets a program into the local network, or not, by
who started it, and a firewall may tell programs apart. Nodes keep their connections to each other open between two
exchanges of cards, and close those over which they were refused; so an open one is proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address

from kakeya_ops.deploy.errors import ServiceError
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.launchd import parse_print
from kakeya_ops.remote.runner import Runner

Address = tuple[str, int]
_PRINT = 'uid=$(id -u); for kind in gui user; do launchctl print "$kind/$uid/$1" 2>/dev/null; printf "\\0"; done'
_LIST = ("lsof", "-nP", "-a", "-iTCP", "-sTCP:ESTABLISHED", "-Fn", "-p")
_CONNECTION = re.compile(r"n.*->(?:\[(?P<v6>[^]]*)\]|(?P<v4>[^:]*)):(?P<port>\d+)")
_NOT_FOUND = 127


def read_own_connections(runner: Runner, label: str) -> frozenset[Address]:
    """The addresses and ports that the process of the service `label` is connected to.

    Raises `ServiceError` where launchd has no process of it, `EnvironmentFault` where the host cannot tell.
    """
    shown = runner.run(["/bin/sh", "-c", _PRINT, "sh", label]).text.split("\0")
    pids = [state.pid for state in map(parse_print, shown) if state.pid is not None]
    if not pids:
        raise ServiceError(runner.name, f"launchd has no process of {label}")
    listed = runner.run([*_LIST, str(pids[0])])
    if listed.status == _NOT_FOUND:
        raise EnvironmentFault(f"{runner.name}: the host has no lsof to tell connections by")
    if listed.status != 0 and (complaint := listed.stderr.decode(errors="replace").strip()):
        raise EnvironmentFault(f"{runner.name}: lsof cannot tell connections: {complaint.splitlines()[0]:.200}")
    return parse_connections(listed.text)


def parse_connections(text: str) -> frozenset[Address]:
    """What ``lsof -Fn`` says of where connections lead to."""
    matches = filter(None, map(_CONNECTION.fullmatch, text.splitlines()))
    return frozenset((match["v6"] or match["v4"], int(match["port"])) for match in matches)


def reached(connections: Iterable[Address], endpoints: Iterable[Endpoint]) -> Endpoint | None:
    """The first of `endpoints` that a connection leads to.

    Names, and addresses of IPv6, which systems write in different ways, are taken for reached by their port alone.
    """
    found = frozenset(connections)
    ports = {port for _, port in found}
    for endpoint in endpoints:
        known = (endpoint.address, endpoint.port) in found
        if known or (not _is_plain(endpoint.address) and endpoint.port in ports):
            return endpoint
    return None


def _is_plain(address: str) -> bool:
    try:
        IPv4Address(address)
    except ValueError:
        return False
    return True


__all__ = ["Address", "parse_connections", "reached", "read_own_connections"]
