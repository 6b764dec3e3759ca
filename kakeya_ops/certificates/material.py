"""What a process needs to speak TLS with its fleet: read once, from the files beside the fleet key.

TLS 1.3 alone, certificates on both sides, both of the fleet's authority; no other authority of the machine counts.

This is imported by everybody who may meet TLS, also where nothing speaks it: what reads certificates is slow to import.
"""

from __future__ import annotations

import datetime
import os
import ssl
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path
from kakeya_ops.errors import InputError

if TYPE_CHECKING:
    from kakeya_ops.certificates.authority import Authority

HINT = "make the fleet's authority with kakeya key new, then: kakeya deploy all; by hand: kakeya key certificate NODE"


@dataclass(frozen=True)
class Certificates:
    """A node's own certificate and the authorities it accepts, ready for both sides of a connection.

    `expires_at` is the Unix time at which its own certificate ends.
    """

    client: ssl.SSLContext
    server: ssl.SSLContext
    expires_at: float

    def is_good(self, now: float) -> bool:
        """Whether its own certificate is good at Unix time `now`."""
        return now < self.expires_at

    @classmethod
    def load(cls, authorities: bytes, own: Path) -> Certificates:
        """From the PEM of authorities, and the file with key and certificate. Raises `InputError`."""
        from kakeya_ops.certificates.facts import parse_certificates

        try:
            [certificate] = parse_certificates(own.read_bytes())
            client, server = (_context(side, authorities, own) for side in _SIDES)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InputError(f"certificate {own} cannot be used: {_reason(error)}", hint=HINT) from error
        # To a server that does not resume sessions, tickets are nothing but bytes that an idle client must read.
        server.num_tickets = 0
        return cls(client, server, certificate.not_valid_after_utc.timestamp())


_SIDES = (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)


def read_certificates(key_file: Path) -> Certificates | None:
    """Those beside the fleet key at `key_file`; None if they were never installed.

    Raises `InputError` for files that cannot be used, or that others can read.
    """
    authorities, own = authorities_path(key_file), certificate_path(key_file)
    try:
        mode, accepted = own.stat().st_mode, authorities.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"certificates beside {key_file} cannot be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"certificate {own} is open to other users", hint=f"chmod 600 {own}")
    return Certificates.load(accepted, own)


def caller_certificates(authority: Authority, caller: str, accepted: bytes | None = None) -> Certificates:
    """Those of somebody who holds the authority and only calls nodes, made for this process.

    It accepts nodes of the same authority, or those of the PEM `accepted`.
    `ssl` takes keys from files alone, so there is one for a moment, in a folder of this user alone.
    """
    now = datetime.datetime.now(datetime.UTC)
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        path = Path(folder) / "caller.pem"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(authority.issue(caller, (), now, serves=False))
        return Certificates.load(accepted or authority.pem, path)


def certificates_here(key_file: Path, caller: str) -> Certificates | None:
    """What `caller`, a command on this machine, has: by the authority if it is here, else those of the node here.

    None where there is neither. Raises `InputError` for files that cannot be used.
    """
    from kakeya_ops.certificates.authority import read_authority

    authority = read_authority(authority_path(key_file))
    return read_certificates(key_file) if authority is None else caller_certificates(authority, caller)


def _context(side: int, authorities: bytes, own: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=authorities.decode("ascii"))
    context.load_cert_chain(own)
    return context


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is no key with a certificate")


__all__ = [
    "HINT",
    "Certificates",
    "caller_certificates",
    "certificates_here",
    "read_certificates",
]
