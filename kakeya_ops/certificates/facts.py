"""What a node's certificate says, and whether it will do: read from files that a host holds, without its key."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kakeya_ops.certificates.names import dns_name

RENEWAL_DAYS = 30
"""A certificate that expires within so many days is replaced."""


def parse_certificates(data: bytes) -> list[x509.Certificate]:
    """The certificates in `data`; none where there are none, or something else."""
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        return []


def find_fault(
    certificate: bytes, authority: x509.Certificate, node: str, addresses: Sequence[str], now: datetime.datetime
) -> str | None:
    """Why the certificate in PEM form will not do for `node` at `addresses`; None if it will."""
    found = parse_certificates(certificate)
    if len(found) != 1:
        return "cannot be read"
    [one] = found
    if not is_issued(one, authority):
        return "is of another authority"
    names = alternatives(one)
    missing = [name for name in (dns_name(node), *map(_plain, addresses)) if name not in names]
    if missing:
        return f"does not name {missing[0]}"
    return _age(one, now)


def is_issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether `authority` signed `certificate`."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def alternatives(certificate: x509.Certificate) -> set[str]:
    """The DNS names and addresses that `certificate` is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = (str(address) for address in found.get_values_for_type(x509.IPAddress))
    return {*found.get_values_for_type(x509.DNSName), *addresses}


def days_left(certificate: x509.Certificate, now: datetime.datetime) -> float:
    """How long `certificate` is still good for, below zero when it no longer is."""
    return (certificate.not_valid_after_utc - now) / datetime.timedelta(days=1)


def _age(certificate: x509.Certificate, now: datetime.datetime) -> str | None:
    if certificate.not_valid_before_utc > now:
        return "is not valid yet"
    left = days_left(certificate, now)
    if left <= 0:
        return "has expired"
    return f"expires in {left:.0f} days" if left < RENEWAL_DAYS else None


def _plain(address: str) -> str:
    """As `alternatives` has it: without the zone of a link-local address, or the dot at the end of a name."""
    return address.partition("%")[0].rstrip(".")


__all__ = ["RENEWAL_DAYS", "alternatives", "days_left", "find_fault", "is_issued", "parse_certificates"]
