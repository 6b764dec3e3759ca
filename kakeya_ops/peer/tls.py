"""TLS to a peer: the handshake of a caller, and what went wrong in the fleet's own words."""

from __future__ import annotations

import socket
import ssl
import time

from kakeya_ops.certificates.material import HINT, Certificates
from kakeya_ops.certificates.names import dns_name
from kakeya_ops.errors import TlsFailed

_EXPIRED, _NOT_YET, _HOSTNAME = 10, 9, 62
_STRANGERS = frozenset({2, 7, 18, 19, 20, 21})
"""Codes of OpenSSL's verification for a certificate that no accepted authority has signed."""
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": ("certificate_missing", "it wants a certificate, and got none"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("certificate_expired", "it says that this node's certificate has expired"),
    "TLSV1_ALERT_UNKNOWN_CA": ("certificate_foreign", "it does not know the authority of this node's certificate"),
}
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})


def usable(peer: str, certificates: Certificates | None) -> Certificates:
    """`certificates`, if `peer` can be called with them: nothing is sent otherwise. Raises `TlsFailed`."""
    if certificates is None:
        raise TlsFailed(peer, "certificate_missing", "is called by TLS alone, and here is no certificate", hint=HINT)
    if not certificates.is_good(time.time()):
        raise TlsFailed(peer, "certificate_expired", "cannot be called: the certificate here has expired", hint=HINT)
    return certificates


def secure(link: socket.socket, peer: str, certificates: Certificates) -> ssl.SSLSocket:
    """`link` under TLS with the node `peer`, which is at its other end, or nobody is.

    Raises `TlsFailed`, or `OSError` when the connection breaks or stalls. A peer that refuses this node's certificate
    says so only when it is asked something: see `refusal`.
    """
    try:
        return certificates.client.wrap_socket(link, server_hostname=dns_name(peer))
    except ssl.SSLCertVerificationError as error:
        raise TlsFailed(peer, *_unverified(peer, error), hint=HINT) from error
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        raise  # the connection broke, whatever it was to be
    except ssl.SSLError as error:
        raise refusal(peer, error) from error


def refusal(peer: str, error: ssl.SSLError) -> TlsFailed:
    """What it means that a connection with `peer` ended in `error`."""
    name = error.reason or ""
    if name in _ALERTS:
        reason, what = _ALERTS[name]
        return TlsFailed(peer, reason, f"refuses this node: {what}", hint=HINT)
    if name in _NO_TLS:
        return TlsFailed(peer, "cleartext", "answers in clear text on a port that must speak TLS")
    return TlsFailed(peer, "tls", f"no TLS connection: {name or error.strerror or 'it broke'}")


def _unverified(peer: str, error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if error.verify_code == _EXPIRED:
        return "certificate_expired", "its certificate has expired"
    if error.verify_code == _NOT_YET:
        return "certificate_expired", "its certificate is not valid yet: do the clocks agree?"
    if error.verify_code == _HOSTNAME:
        return "certificate_wrong_node", f"what answers there is another node: its certificate does not name {peer}"
    if error.verify_code in _STRANGERS:
        return "certificate_foreign", "its certificate is not of an authority of this fleet"
    return "tls", f"its certificate is no good: {error.verify_message}"


__all__ = ["refusal", "secure", "usable"]
