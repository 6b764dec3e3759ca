"""What OpenSSL says, in the fleet's own words. Whole connections are in ``tests/serving/test_tls_protocol.py``."""

from __future__ import annotations

import ssl

import pytest

from kakeya_ops.errors import TlsFailed
from kakeya_ops.peer.connection import DEFAULT_TIMEOUTS, Call, Connections, Endpoint, StopFlag
from kakeya_ops.peer.tls import refusal, usable
from trust import LONG_AGO, certificates


def ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "certificate_missing"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "certificate_expired"),
        ("TLSV1_ALERT_UNKNOWN_CA", "certificate_foreign"),
        ("WRONG_VERSION_NUMBER", "cleartext"),
        ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "tls"),
    ],
)
def test_each_end_of_a_connection_has_a_reason(said: str, reason: str) -> None:
    error = refusal("allens", ssl_error(said))
    assert error.reason == reason
    assert error.message.startswith("allens: ")


def test_nothing_is_sent_without_a_good_certificate() -> None:
    good = certificates("head")
    assert usable("allens", good) is good
    with pytest.raises(TlsFailed, match="here is no certificate"):
        usable("allens", None)
    with pytest.raises(TlsFailed, match="has expired") as caught:
        usable("allens", certificates("head", now=LONG_AGO))
    assert caught.value.reason == "certificate_expired"


def test_an_endpoint_is_called_by_tls_unless_it_is_said_otherwise() -> None:
    assert Endpoint("10.0.0.7", 1).security == "tls"
    assert Endpoint("10.0.0.7", 1, in_clear=True).security == "clear"
    assert Endpoint("127.0.0.1", 1).security == "clear"
    assert Endpoint("10.0.0.7", 1, in_clear=True) == Endpoint("10.0.0.7", 1)
    connections = Connections("allens", Endpoint("192.0.2.1", 9), DEFAULT_TIMEOUTS)
    call = Call("GET", "/", dict, lambda headers: b"", 1.0)
    with pytest.raises(TlsFailed), connections.call(call, StopFlag()):
        raise AssertionError
