"""Faults between the sections of an inventory: names that do not exist, addresses that two nodes claim, no head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.inventory.findings import Finding, Location, render_location
from kakeya_ops.inventory.sections import Endpoint, Fleet, Host
from kakeya_ops.spelling import did_you_mean


@dataclass(frozen=True)
class Parts:
    """As much of an inventory as is understood.

    `names` are all hosts, with those that have faults of their own and are therefore not in `hosts`. `fleet` is None
    when its section has a fault.
    """

    fleet: Fleet | None
    hosts: Mapping[str, Host]
    names: frozenset[str]
    groups: Mapping[str, tuple[str, ...]]


def find_contradictions(parts: Parts) -> Iterator[Finding]:
    """Every fault between the sections; locations are from the root."""
    yield from _lacking_head(parts)
    yield from _unsigned_beyond_loopback(parts)
    yield from _claimed_twice(parts)
    for group, members in parts.groups.items():
        yield from _group(group, members, parts.names)


def _lacking_head(parts: Parts) -> Iterator[Finding]:
    understood = bool(parts.names) and parts.names == set(parts.hosts)
    if understood and not any(host.role == "head" for host in parts.hosts.values()):
        yield Finding(("hosts",), "no host has the role head, so nobody would answer requests")


def _unsigned_beyond_loopback(parts: Parts) -> Iterator[Finding]:
    if parts.fleet is None or parts.fleet.key_file is not None:
        return
    for (_, name, *_), endpoint in _endpoints(parts):
        if not is_loopback(endpoint.address):
            reason = f"{name} is reached at {endpoint.address}, and an unsigned fleet is for loopback alone"
            yield Finding(("fleet", "key_file"), f"must name a file: {reason}")
            return


def _claimed_twice(parts: Parts) -> Iterator[Finding]:
    claims: dict[tuple[str, int], str] = {}
    for location, endpoint in _endpoints(parts):
        place = render_location(location)
        owner = claims.setdefault((endpoint.address.lower(), endpoint.port), place)
        if owner != place:
            yield Finding(location, f"{endpoint.address}:{endpoint.port} is already claimed by {owner}")


def _endpoints(parts: Parts) -> Iterator[tuple[Location, Endpoint]]:
    for name, host in parts.hosts.items():
        for index, endpoint in enumerate(host.endpoints):
            yield ("hosts", name, "endpoints", index), endpoint


def _group(group: str, members: tuple[str, ...], names: frozenset[str]) -> Iterator[Finding]:
    if group in names:
        yield Finding(("groups", group), "a host has this name already; a target must mean one thing")
    for index, member in enumerate(members):
        if member not in names:
            yield Finding(("groups", group, index), f"no host is called {member!r}{did_you_mean(member, names)}")
        elif member in members[:index]:
            yield Finding(("groups", group, index), f"{member} is listed twice")


__all__ = ["Parts", "find_contradictions"]
