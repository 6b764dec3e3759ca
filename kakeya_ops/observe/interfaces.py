"""A host's network interfaces, as ``ifconfig -a`` prints them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_INTERFACE = re.compile(r"^(\w+): .*?\bmtu (\d+)[^\n]*\n((?:[ \t][^\n]*\n?)*)", re.MULTILINE)
_ADDRESS = re.compile(r"^\s*inet6? ([^\s%]+)", re.MULTILINE)


@dataclass(frozen=True)
class Interface:
    """A network interface: the longest packet it takes, in bytes, and its addresses without zones, as printed."""

    mtu_bytes: int
    addresses: tuple[str, ...]


def parse_interfaces(text: str) -> dict[str, Interface]:
    """The interfaces by name, in the order in which they are printed."""
    found = _INTERFACE.findall(text if text.endswith("\n") else f"{text}\n")
    return {name: Interface(int(mtu), tuple(_ADDRESS.findall(lines))) for name, mtu, lines in found}


__all__ = ["Interface", "parse_interfaces"]
