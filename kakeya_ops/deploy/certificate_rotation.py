"""Replaces the fleet's authority, and with it every certificate, in the passes that replace the fleet key.

While the fleet's key file is in a state of `key_rotation.State`, the files for TLS are in the one of the same name:
first every node accepts certificates of both authorities, then each gets one of the new, then the old one is forgotten.
The old and the new authority lie beside that of the operator's machine until all is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path
from kakeya_ops.deploy.certificates import MODE, addresses_of, now
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.remote_files import write_reversibly
from kakeya_ops.errors import InputError
from kakeya_ops.inventory import Inventory
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.settings import expand_here

if TYPE_CHECKING:
    from kakeya_ops.certificates.authority import Authority

ACCEPTS, SIGNS, DONE = 1, 2, 3
"""As `key_rotation.State` counts."""


@dataclass(frozen=True)
class Authorities:
    """The authority that is replaced, and the one that replaces it."""

    old: Authority
    new: Authority

    def accepted(self, state: int) -> bytes:
        """What a node in `state` knows certificates by."""
        return {ACCEPTS: self.old.pem + self.new.pem, SIGNS: self.new.pem + self.old.pem, DONE: self.new.pem}[state]

    def state_of(self, accepted: bytes | None) -> int:
        """The state of a host that accepts these; 0 for one at which nothing was done yet."""
        return next((state for state in (ACCEPTS, SIGNS, DONE) if self.accepted(state) == accepted), 0)

    def write(self, context: HostContext, state: int) -> None:
        """Bring the files of a host to `state`; its certificate is replaced when all nodes know the new authority."""
        key = context.places.key
        assert key is not None
        issuer = self.old if state < SIGNS else self.new
        own = str(certificate_path(key))
        if state == SIGNS or context.runner.read(own) is None:
            issued = issuer.issue(context.host.name, addresses_of(context.host), now())
            write_reversibly(context, own, issued, MODE)
        write_reversibly(context, str(authorities_path(key)), self.accepted(state), MODE)


class PendingAuthorities:
    """The files of this machine that remember both authorities from before the first change until after the last."""

    def __init__(self, key_file: Path, fleet: str) -> None:
        self.path = authority_path(key_file)
        self._fleet = fleet
        self._old, self._new = Path(f"{self.path}.old"), Path(f"{self.path}.new")
        self._here = LocalRunner("this machine")

    @classmethod
    def of(cls, inventory: Inventory) -> PendingAuthorities | None:
        """That of the inventory's fleet; None where nothing needs TLS, and the authority stays what it is."""
        key_file = inventory.fleet.key_file
        if key_file is None or not inventory.needs_tls:
            return None
        return cls(Path(expand_here(key_file)), inventory.fleet.name)

    def begin(self) -> Authorities:
        """Those of the rotation that is under way, or of a new one. Raises `InputError`, `RemoteError`."""
        from kakeya_ops.certificates.authority import read_authority, write_authority

        current = read_authority(self.path)
        if current is None:
            raise InputError(f"the fleet has no authority to be replaced: {self.path}", hint="kakeya key new")
        if read_authority(self._old) is None:
            self._here.write(str(self._old.absolute()), current.file, MODE)
        if read_authority(self._new) is None:
            write_authority(self._new, self._fleet, now())
        old, new = read_authority(self._old), read_authority(self._new)
        assert old is not None
        assert new is not None
        return Authorities(old, new)

    def adopt(self, authorities: Authorities) -> None:
        """This machine issues by the new authority from now on."""
        self._here.write(str(self.path.absolute()), authorities.new.file, MODE)

    def end(self) -> None:
        """Forget the old authority."""
        for path in (self._old, self._new):
            path.unlink(missing_ok=True)


__all__ = ["Authorities", "PendingAuthorities"]
