"""Macs that announce themselves on the local network: Remote Login (``_ssh._tcp``), or a node (``_kakeya._tcp``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zeroconf import IPVersion, ServiceBrowser, ServiceListener, Zeroconf

from kakeya_ops.serving.announcing import TYPE as NODE

SSH = "_ssh._tcp.local."
SECONDS = 3.0
_RESOLVE_MILLISECONDS = 1500


@dataclass(frozen=True)
class Announced:
    """A Mac that was heard. `role` is that of the node on it, None where it announces none."""

    name: str
    server: str
    addresses: tuple[str, ...]
    role: str | None = None


def discover(seconds: float = SECONDS, interfaces: Sequence[str] | None = None) -> tuple[Announced, ...]:
    """Listen for so long; each Mac once, by name. `interfaces` are the addresses to listen at, None for all.

    What is heard was said by anybody on the network: it is a list to choose from, and proves nothing.
    """
    heard = _Heard()
    zeroconf = Zeroconf(interfaces=list(interfaces)) if interfaces else Zeroconf()
    try:
        browser = ServiceBrowser(zeroconf, [SSH, NODE], heard)
        time.sleep(seconds)
        browser.cancel()
        return _merge([found for kind, name in heard.names if (found := _resolve(zeroconf, kind, name))])
    finally:
        zeroconf.close()


class _Heard(ServiceListener):
    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    def add_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        self.names.append((type_, name))

    def update_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        """Nothing: what is said is read at the end."""

    def remove_service(self, zc: Zeroconf, type_: str, name: str) -> None:
        if (type_, name) in self.names:
            self.names.remove((type_, name))


def _resolve(zeroconf: Zeroconf, kind: str, name: str) -> Announced | None:
    info = zeroconf.get_service_info(kind, name, _RESOLVE_MILLISECONDS)
    if info is None or info.server is None:
        return None
    said = info.properties.get(b"role") if kind == NODE else None
    role = said.decode("utf-8", "replace") if said else None
    addresses = tuple(info.parsed_addresses(IPVersion.V4Only))
    return Announced(name.removesuffix(f".{kind}"), info.server.rstrip("."), addresses, role)


def _merge(found: Sequence[Announced]) -> tuple[Announced, ...]:
    """One entry for each server, with the role where one of its services says it."""
    by_server: dict[str, Announced] = {}
    for one in found:
        known = by_server.get(one.server, one)
        addresses = tuple(dict.fromkeys((*known.addresses, *one.addresses)))
        by_server[one.server] = replace(known, role=known.role or one.role, addresses=addresses)
    return tuple(sorted(by_server.values(), key=lambda one: one.name))


__all__ = ["NODE", "SECONDS", "SSH", "Announced", "discover"]
