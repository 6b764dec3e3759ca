from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.certificates.authority import read_authority
from kakeya_ops.certificates.founding import Made, make_secrets
from kakeya_ops.certificates.places import authority_path
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.secret import read_fleet_key, write_fleet_key


def test_a_fleet_begins_with_a_key_and_an_authority(tmp_path: Path) -> None:
    key = tmp_path / "folder/fleet.key"
    assert make_secrets(key, "pair") == Made(key, authority_path(key))
    read_fleet_key(key)
    assert read_authority(authority_path(key)) is not None
    before = [path.read_bytes() for path in sorted(key.parent.iterdir())]
    with pytest.raises(EnvironmentFault, match="exists, and so does its authority"):
        make_secrets(key, "pair")
    assert [path.read_bytes() for path in sorted(key.parent.iterdir())] == before


def test_an_older_fleet_gets_the_authority_that_it_lacks_and_keeps_its_key(tmp_path: Path) -> None:
    key = tmp_path / "fleet.key"
    secret = write_fleet_key(key)
    assert make_secrets(key, "pair") == Made(None, authority_path(key))
    assert read_fleet_key(key) == secret
