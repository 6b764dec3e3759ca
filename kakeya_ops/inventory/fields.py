"""The kinds of single values that an inventory holds: names, addresses, ports, paths."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

ALL = "all"
"""The target that means every host; no host or group may have this name."""

_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_DNS_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_-]{1,63})*\.?")
_IP_TEXT = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")  # ipaddress takes any text at all as an IPv6 zone
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_loopback(address: str) -> bool:
    """True when `address` is this machine's own, reachable from nowhere else."""
    if address.lower() == "localhost":
        return True
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def is_unspecified(address: str) -> bool:
    """True for ``0.0.0.0`` and ``::``, which a server may bind and nobody can connect to."""
    try:
        return ip_address(address).is_unspecified
    except ValueError:
        return False


def _label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise ValueError("must be 1 to 63 lower-case letters, digits and hyphens, and begin with a letter or digit")
    if value == ALL:
        raise ValueError(f"{ALL!r} already means every host; choose another name")
    return value


def _address(value: str) -> str:
    if _IP_TEXT.fullmatch(value):
        with suppress(ValueError):
            return str(ip_address(value))
    if not _DNS_NAME.fullmatch(value) or value.rstrip(".").rpartition(".")[2].isdigit():
        raise ValueError(f"must be an IP address or a DNS name, not {value[:60]!r}")
    return value


def _reachable(value: str) -> str:
    if is_unspecified(value):
        raise ValueError(f"{value} is no address that another host can connect to; write the one it is reached at")
    return value


def _host_path(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be a path without control characters")
    if value != "~" and not value.startswith(("/", "~/")):
        raise ValueError(f"must begin with / or ~/, not {value[:60]!r}: it is looked up on the host it is about")
    return value


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("must be the name of an environment variable: letters, digits and _, no digit first")
    return value


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"must be a power of two from 16 to 512, not {value}")
    return value


Label = Annotated[str, AfterValidator(_label)]
"""A host's or group's name."""
BindAddress = Annotated[str, AfterValidator(_address)]
"""Where a server listens; may be every address of its host."""
Address = Annotated[str, AfterValidator(_address), AfterValidator(_reachable)]
"""Where a peer connects to."""
HostPath = Annotated[str, AfterValidator(_host_path)]
"""An absolute path; ``~`` is the home folder on the host it is about and stays as written."""
VariableName = Annotated[str, AfterValidator(_variable)]
Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""One line of free text."""
Port = Annotated[int, Field(ge=1, le=65535)]
BlockTokens = Annotated[int, Field(ge=16, le=512), AfterValidator(_power_of_two)]
Gigabytes = Annotated[float, Field(gt=0, le=4096)]
"""Counted as macOS and Apple's memory sizes count: one is 2**30 bytes."""

GIGABYTE_BYTES = 2**30

__all__ = [
    "ALL",
    "GIGABYTE_BYTES",
    "Address",
    "BindAddress",
    "BlockTokens",
    "Gigabytes",
    "HostPath",
    "Label",
    "Port",
    "Text",
    "VariableName",
    "is_loopback",
    "is_unspecified",
]
