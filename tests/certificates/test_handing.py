from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.certificates import Certificates, read_certificates
from kakeya_ops.certificates.facts import alternatives, is_issued, parse_certificates
from kakeya_ops.certificates.handing import hand_out
from kakeya_ops.errors import EnvironmentFault
from trust import AUTHORITY, STRANGER


def test_a_node_can_be_served_with_what_is_handed_out(tmp_path: Path) -> None:
    key = tmp_path / "allens/fleet.key"
    files = hand_out(AUTHORITY, "allens", ("10.0.0.7",), key)
    assert isinstance(read_certificates(key), Certificates)
    [certificate] = parse_certificates(files.certificate.read_bytes())
    assert is_issued(certificate, AUTHORITY.certificate)
    assert alternatives(certificate) == {"allens.kakeya.internal", "10.0.0.7"}
    assert {path.stat().st_mode & 0o777 for path in key.parent.iterdir()} == {0o600}
    assert sorted(key.parent.iterdir()) == [files.authorities, files.certificate]


def test_nothing_is_written_over_unless_it_may_be(tmp_path: Path) -> None:
    key = tmp_path / "fleet.key"
    files = hand_out(AUTHORITY, "allens", (), key)
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    for issuer, said in ((AUTHORITY, "exists"), (STRANGER, "another authority")):
        with pytest.raises(EnvironmentFault, match=said) as caught:
            hand_out(issuer, "allens", (), key)
        assert "--replace" in str(caught.value.hint)
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == before
    hand_out(STRANGER, "allens", (), key, replace=True)
    [certificate] = parse_certificates(files.certificate.read_bytes())
    assert is_issued(certificate, STRANGER.certificate)
    assert files.authorities.read_bytes() == STRANGER.pem
    assert sorted(tmp_path.iterdir()) == [files.authorities, files.certificate]
    assert files.certificate.stat().st_mode & 0o777 == 0o600


def test_the_fleets_authority_may_be_there_already(tmp_path: Path) -> None:
    key = tmp_path / "fleet.key"
    files = hand_out(AUTHORITY, "allens", (), key)
    files.certificate.unlink()
    hand_out(AUTHORITY, "allens", (), key)
    assert read_certificates(key) is not None


def test_where_nothing_can_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot write the certificate of allens"):
        hand_out(AUTHORITY, "allens", (), tmp_path / "file/fleet.key")
