"""A Mac that is to be in a fleet: what it is called, and what was read of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.memory.facts import parse_host
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.memory.reading import MEMORY_PROBES
from kakeya_ops.observe.interfaces import Interface, parse_interfaces
from kakeya_ops.probes import MISSING, make_nonce, parse_findings, script_of
from kakeya_ops.remote.runner import Runner

_SECONDS = 60.0
_GIB = 2**30
_PROBES = r"""
probe user id -un
probe name hostname
probe chip sysctl -n machdep.cpu.brand_string
probe interfaces ifconfig -a
probe_memory ""
"""
_NOT_IN_A_LABEL = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Invitation:
    """`name` is the host's in the inventory, `ssh` what ssh is asked to connect to."""

    name: str
    ssh: str

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """``NAME=SSH``, or an ssh target alone, from which the name is made. Raises `InputError`."""
        name, separator, ssh = text.partition("=")
        target = ssh if separator else text
        if not target or (separator and not name):
            raise InputError(f"{text!r} names no host", hint="write NAME=SSH, such as allens=allens.local, or just SSH")
        return cls(make_label(name if separator else target.rpartition("@")[2].partition(".")[0]), target)


@dataclass(frozen=True)
class Newcomer:
    """What was read of a Mac. `interfaces` are those that lead to other machines, by name."""

    invitation: Invitation
    user: str
    chip: str
    memory: HostMemory
    interfaces: Mapping[str, Interface]

    @property
    def name(self) -> str:
        """Its name in the inventory."""
        return self.invitation.name

    @property
    def memory_gb(self) -> float | None:
        """Its memory in GiB, None where it did not say."""
        total = self.memory.total_bytes.nbytes
        return None if total is None else round(total / _GIB, 1)

    def address(self, prefix: str) -> str | None:
        """The first IPv4 address of an interface whose name begins with `prefix`."""
        found = (one.addresses for name, one in self.interfaces.items() if name.startswith(prefix))
        return next((address for addresses in found for address in addresses if "." in address), None)


def make_label(text: str) -> str:
    """`text` as a host's name: lower-case letters, digits and hyphens. Raises `InputError` if nothing is left."""
    label = _NOT_IN_A_LABEL.sub("-", text.lower()).strip("-")[:63]
    if not label:
        raise InputError(f"{text!r} gives no name for a host", hint="write NAME=SSH")
    return label


def read_newcomer(runner: Runner, invitation: Invitation) -> Newcomer:
    """What the Mac behind `runner` is like, in one call.

    Raises `RemoteError` when it cannot be asked, `EnvironmentFault` when it does not even know its user.
    """
    script = script_of((MEMORY_PROBES + _PROBES).encode(), make_nonce())
    result = runner.run(script.argv(), input=script.text, timeout_seconds=_SECONDS)
    found = parse_findings(result.stdout, script.nonce)
    user = found.get("user", MISSING)
    if user.status != 0:
        raise EnvironmentFault(f"{invitation.name} does not tell who its user is", hint=f"try: ssh {invitation.ssh} id")
    interfaces = parse_interfaces(found.get("interfaces", MISSING).text)
    return Newcomer(
        invitation=invitation,
        user=user.text.strip(),
        chip=found.get("chip", MISSING).text.strip() or "unknown chip",
        memory=parse_host(found),
        interfaces={name: one for name, one in interfaces.items() if not name.startswith("lo")},
    )


__all__ = ["Invitation", "Newcomer", "make_label", "read_newcomer"]
