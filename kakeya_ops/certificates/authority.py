"""The authority of one fleet: who holds its key says which nodes belong to the fleet.

The key stays on the operator's machine, beside the fleet key there, and is never copied to a host. A node's key is made
by whoever issues its certificate and travels with it, as the fleet key does, which opens more than this key can.
"""

from __future__ import annotations

import datetime
import ipaddress
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kakeya_ops.certificates.names import dns_name, uri
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.secret import write_new_secret

AUTHORITY_DAYS = 3650
NODE_DAYS = 730
"""Below the 825 days that macOS allows to any certificate of a server, also of a private authority."""
_SKEW = datetime.timedelta(days=1)
"""A certificate is good from so long before it is issued, for hosts whose clocks lag."""


@dataclass(frozen=True)
class Authority:
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Authority({self.certificate.serial_number:x})"

    @classmethod
    def new(cls, fleet: str, now: datetime.datetime) -> Authority:
        """A new authority of the fleet called `fleet`, good from `now` (with a time zone) on for ten years."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"kakeya fleet {fleet}")
        builder = _builder(name, name, key.public_key(), (now, now + datetime.timedelta(days=AUTHORITY_DAYS)))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pem(self) -> bytes:
        """What nodes are given, to know certificates of this authority by."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def file(self) -> bytes:
        """What the operator's machine keeps: key and certificate."""
        return _key_pem(self.key) + self.pem

    def issue(self, node: str, addresses: Sequence[str], now: datetime.datetime, *, serves: bool = True) -> bytes:
        """A key and its certificate for `node`, reached at `addresses`, in the one file that it keeps them in.

        One that only calls, and `serves` nothing, can not be taken for a node.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now + datetime.timedelta(days=NODE_DAYS), self.certificate.not_valid_after_utc)
        builder = _builder(_name(node), self.certificate.subject, key.public_key(), (now, until))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if serves else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(node, addresses)), critical=False)
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(ours, critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return _key_pem(key) + signed.public_bytes(serialization.Encoding.PEM)


def write_authority(path: Path, fleet: str, now: datetime.datetime) -> Authority:
    """Make a new authority at `path`, mode 0600, whole or not at all. Never replaces a file: `EnvironmentFault`."""
    authority = Authority.new(fleet, now)
    try:
        write_new_secret(path, authority.file)
    except FileExistsError:
        raise EnvironmentFault(f"authority {path} exists, and one is never replaced by itself") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot write authority {path}: {error.strerror}") from error
    return authority


def read_authority(path: Path) -> Authority | None:
    """The authority at `path`; None if there is none. Raises `InputError` if it is broken, or open to others."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise InputError(f"authority {path} is open to other users", hint=f"chmod 600 {path}")
        return parse_authority(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"authority {path} cannot be read: {error.strerror}") from error
    except ValueError:  # whose own words might quote the key
        raise InputError(f"authority {path} does not hold a key and its certificate") from None


def parse_authority(data: bytes) -> Authority:
    """What `Authority.file` made. Raises `ValueError`."""
    try:
        key = serialization.load_pem_private_key(data, None)
    except TypeError as error:
        raise ValueError("the key is encrypted") from error
    certificate = x509.load_pem_x509_certificate(data)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise ValueError("the key is not the certificate's")
    return Authority(certificate, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    validity: tuple[datetime.datetime, datetime.datetime],
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), validity[0] - _SKEW, validity[1]
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(node: str, addresses: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = [x509.DNSName(dns_name(node)), x509.UniformResourceIdentifier(uri(node))]
    for address in addresses:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address.partition("%")[0])))
        except ValueError:
            names.append(x509.DNSName(address.rstrip(".")))
    return names


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


__all__ = [
    "AUTHORITY_DAYS",
    "NODE_DAYS",
    "Authority",
    "parse_authority",
    "read_authority",
    "write_authority",
]
