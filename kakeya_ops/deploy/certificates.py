"""A host's certificate: whether it will do, and the step that installs one.

Its key is made on the operator's machine, for this one step, and kept nowhere but on the host: it travels beside the
fleet key, which opens more, and a host needs nothing to get it but a file written, not even a program of ours.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.remote_files import write_reversibly
from kakeya_ops.deploy.restoring import note_running_service
from kakeya_ops.errors import InputError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.observe.state import HostState, Unknown
from kakeya_ops.settings import expand_here

if TYPE_CHECKING:
    from kakeya_ops.certificates.authority import Authority

MODE = 0o600


def read_fleet_authority(inventory: Inventory) -> Authority | None:
    """The fleet's authority on this machine; None for a fleet in which nothing needs TLS.

    Raises `InputError` if one is needed and there is none, or it is about to expire.
    """
    if inventory.fleet.key_file is None or not inventory.needs_tls:
        return None
    # Slow to import, and only here because something needs TLS.
    from kakeya_ops.certificates.authority import read_authority
    from kakeya_ops.certificates.facts import RENEWAL_DAYS, days_left

    path = authority_path(expand_here(inventory.fleet.key_file))
    authority = read_authority(path)
    if authority is None:
        raise InputError(
            f"an endpoint that is neither trusted nor loopback speaks TLS, and the fleet has no authority: {path}",
            hint="make it with: kakeya key new; or set trusted: true where nobody else can listen",
        )
    if days_left(authority.certificate, now()) < RENEWAL_DAYS:
        raise InputError(f"the fleet's authority {path} expires soon", hint="replace it with: kakeya key rotate")
    return authority


def certificate_fault(host: ResolvedHost, state: HostState, authority: Authority) -> str | None:
    """Why the certificates on a host will not do; None if they will."""
    from kakeya_ops.certificates.facts import find_fault

    if state.authorities != authority.pem:
        what = "is missing" if state.authorities is None else "differs"
        return f"the fleet's authority {what}"
    found = state.certificate
    if found is None or isinstance(found, Unknown):
        return "the node's certificate is missing" if found is None else f"the node's certificate is {found}"
    if found.mode != MODE:
        return f"the node's certificate has mode {found.mode:04o}"
    fault = find_fault(found.pem, authority.certificate, host.name, addresses_of(host), now())
    return fault and f"the node's certificate {fault}"


@dataclass(frozen=True)
class WriteCertificates:
    """What the node knows its peers by, and a new certificate of its own."""

    authority: Authority
    authorities: bytes
    """Those that it accepts: more than one only while the fleet's is being replaced."""

    @property
    def title(self) -> str:
        """See `Step`."""
        return "write a certificate for the node, and the fleet's authority (mode 0600)"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        key = context.places.key
        assert key is not None
        note_running_service(context)
        issued = self.authority.issue(context.host.name, addresses_of(context.host), now())
        write_reversibly(context, str(authorities_path(key)), self.authorities, MODE)
        write_reversibly(context, str(certificate_path(key)), issued, MODE)


def addresses_of(host: ResolvedHost) -> tuple[str, ...]:
    """What a certificate names besides its node."""
    return tuple(dict.fromkeys(endpoint.address for endpoint in host.endpoints))


def now() -> datetime.datetime:
    """This machine's time: certificates are judged where they are issued."""
    return datetime.datetime.now(datetime.UTC)


__all__ = [
    "MODE",
    "WriteCertificates",
    "addresses_of",
    "certificate_fault",
    "now",
    "read_fleet_authority",
]
