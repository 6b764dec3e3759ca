from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from kakeya_ops.certificates.authority import (
    NODE_DAYS,
    Authority,
    parse_authority,
    read_authority,
    write_authority,
)
from kakeya_ops.certificates.facts import alternatives, days_left, is_issued, parse_certificates
from kakeya_ops.certificates.places import authority_path
from kakeya_ops.errors import EnvironmentFault, InputError
from trust import AUTHORITY, LONG_AGO, NOW, STRANGER


def test_an_authority_lies_beside_the_fleet_key_for_its_owner_alone(tmp_path: Path) -> None:
    path = authority_path(tmp_path / "folder/fleet.key")
    assert read_authority(path) is None
    made = write_authority(path, "pair", NOW)
    assert path == tmp_path / "folder/fleet.key.authority.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = read_authority(path)
    assert found is not None
    assert (found.pem, found.file) == (made.pem, made.file)


def test_an_authority_is_never_replaced(tmp_path: Path) -> None:
    made = write_authority(tmp_path / "a", "pair", NOW)
    with pytest.raises(EnvironmentFault, match="never replaced"):
        write_authority(tmp_path / "a", "pair", NOW)
    assert (tmp_path / "a").read_bytes() == made.file


def test_one_that_others_can_read_or_that_is_none_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_authority(path, "pair", NOW)
    path.chmod(0o640)
    with pytest.raises(InputError, match="open to other users"):
        read_authority(path)
    path.chmod(0o600)
    for content in (b"", b"secret", AUTHORITY.pem, STRANGER.file.replace(STRANGER.pem, AUTHORITY.pem)):
        path.write_bytes(content)
        with pytest.raises(InputError, match="does not hold a key and its certificate") as caught:
            read_authority(path)
        assert "secret" not in str(caught.value)


def test_its_key_shows_nowhere() -> None:
    assert "PRIVATE" not in repr(AUTHORITY)
    assert b"PRIVATE" not in AUTHORITY.pem
    assert parse_authority(AUTHORITY.file).pem == AUTHORITY.pem


def test_a_node_has_a_certificate_for_its_name_and_its_addresses() -> None:
    issued = AUTHORITY.issue("allens", ("169.254.27.104", "fe80::1%en0", "allens.local."), NOW)
    [certificate] = parse_certificates(issued)
    assert alternatives(certificate) == {"allens.kakeya.internal", "169.254.27.104", "fe80::1", "allens.local"}
    assert is_issued(certificate, AUTHORITY.certificate)
    assert not is_issued(certificate, STRANGER.certificate)
    assert issued.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert round(days_left(certificate, NOW)) == NODE_DAYS


def test_no_certificate_outlives_its_authority() -> None:
    old = Authority.new("old", LONG_AGO.replace(year=LONG_AGO.year - 7))
    [certificate] = parse_certificates(old.issue("n", (), NOW))
    assert certificate.not_valid_after_utc == old.certificate.not_valid_after_utc


def test_nobody_but_the_authority_can_issue_any() -> None:
    [node] = parse_certificates(AUTHORITY.issue("n", (), NOW))
    constraints = node.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
