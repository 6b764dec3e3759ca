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

Address = tuple[str, int]
# Whatever looks like the line of a process id is listed, and what launchd really says decides which one counts.
_LIST = r"""
uid=$(id -u)
for kind in gui user; do
  shown=$(launchctl print "$kind/$uid/$1" 2>/dev/null)
  printf '%s\n\0' "$shown"
  pids="$pids $(printf '%s\n' "$shown" | sed -n 's/^[[:space:]]*pid = \([0-9][0-9]*\)$/\1/p')"
done
pids=$(echo $pids | tr ' ' ,)
[ -n "$pids" ] || exit 0
lsof -nP -a -iTCP -sTCP:ESTABLISHED -Fn -p "$pids" 2>&1
printf '\0%s' $?
"""
_CONNECTION = re.compile(r"n.*->(?:\[(?P<v6>[^]]*)\]|(?P<v4>[^:]*)):(?P<port>\d+)")
_NOT_FOUND = 127


def list_call(label: str) -> tuple[str, ...]:
    """The command whose output `parse_listing` reads, for the service `label`."""
    return ("/bin/sh", "-c", _LIST, "sh", label)


def parse_listing(host: str, output: bytes) -> frozenset[Address]:
    """The addresses and ports that the process of the service is connected to; `host` is for messages.

    Raises `ServiceError` where launchd has no process of it, `EnvironmentFault` where the host cannot tell.
    """
    *shown, listed, status = [*output.decode(errors="replace").split("\0"), "", "", ""][:4]
    pids = [state.pid for state in map(parse_print, shown) if state.pid is not None]
    if not pids:
        raise ServiceError(host, "launchd has no process of the service")
    if status == str(_NOT_FOUND):
        raise EnvironmentFault(f"{host}: the host has no lsof to tell connections by")
    complaints = [line for line in listed.splitlines() if line[:1] not in ("p", "f", "n")]
    if status != "0" and complaints:
        raise EnvironmentFault(f"{host}: lsof cannot tell connections: {complaints[0]:.200}")
    return parse_connections(_section(listed, pids[0]))


def _section(listed: str, pid: int) -> str:
    """The lines of ``lsof -Fn`` about the process `pid`."""
    lines: list[str] = []
    ours = False
    for line in listed.splitlines():
        if line.startswith("p"):
            ours = line == f"p{pid}"
        elif ours:
            lines.append(line)
    return "\n".join(lines)


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


__all__ = [
    "Address",
    "list_call",
    "parse_connections",
    "parse_listing",
    "reached",
]
