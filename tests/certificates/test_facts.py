from __future__ import annotations

import datetime

import pytest

from kakeya_ops.certificates.facts import alternatives, find_fault, parse_certificates
from trust import AUTHORITY, NOW, STRANGER

ADDRESSES = ("10.0.0.7", "allens.local")
ISSUED = AUTHORITY.issue("allens", ADDRESSES, NOW)
DAY = datetime.timedelta(days=1)


def fault(data: bytes = ISSUED, *, node: str = "allens", days: float = 0, more: tuple[str, ...] = ()) -> str | None:
    return find_fault(data, AUTHORITY.certificate, node, (*ADDRESSES, *more), NOW + days * DAY)


def test_a_certificate_that_will_do() -> None:
    assert fault() is None
    assert fault(days=699) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (fault(b""), "cannot be read"),
        (fault(b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"), "cannot be read"),
        (fault(ISSUED + AUTHORITY.pem), "cannot be read"),
        (fault(STRANGER.issue("allens", ADDRESSES, NOW)), "is of another authority"),
        (fault(node="head"), "does not name head.kakeya.internal"),
        (fault(more=("10.0.0.8",)), "does not name 10.0.0.8"),
        (fault(days=701), "expires in 29 days"),
        (fault(days=731), "has expired"),
        (fault(days=-2), "is not valid yet"),
    ],
)
def test_why_a_certificate_will_not_do(found: str | None, said: str) -> None:
    assert found == said


def test_the_authority_itself_names_nobody() -> None:
    [own] = parse_certificates(AUTHORITY.pem)
    assert alternatives(own) == set()
