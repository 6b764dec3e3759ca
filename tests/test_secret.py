"""The fleet key: never shown, never replaced, never read from a file that others can read."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import stat
from pathlib import Path

import pytest

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.secret import (
    Secret,
    also_accepted,
    key_lines,
    new_fleet_key,
    read_fleet_key,
    read_fleet_keys,
    read_keys,
    write_fleet_key,
)


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(b"open sesame")
    assert "sesame" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == b"open sesame"


def test_secrets_are_equal_by_value() -> None:
    assert Secret(b"a") == Secret(b"a")
    assert hash(Secret(b"a")) == hash(Secret(b"a"))
    assert Secret(b"a") != Secret(b"b")
    assert Secret(b"a") != b"a"


def test_each_purpose_has_a_key_of_its_own() -> None:
    secret = Secret(bytes(32))
    assert secret.derive("request").reveal() == hmac.digest(bytes(32), b"kakeya:request", hashlib.sha256)
    assert secret.derive("request") != secret.derive("reply")


def test_what_is_written_is_read_and_only_its_owner_may(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "fleet.key"
    written = write_fleet_key(path)
    assert read_fleet_key(path) == written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(read_fleet_key(path).reveal()) == 32


def test_a_key_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    first = write_fleet_key(path)
    with pytest.raises(EnvironmentFault, match="exists, and a key is never replaced"):
        write_fleet_key(path)
    assert read_fleet_key(path) == first
    assert list(tmp_path.iterdir()) == [path]


def test_two_keys_differ(tmp_path: Path) -> None:
    assert write_fleet_key(tmp_path / "a") != write_fleet_key(tmp_path / "b")


def test_a_missing_key_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist") as caught:
        read_fleet_key(tmp_path / "fleet.key")
    assert caught.value.hint == "make one with: kakeya key new"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "fleet.key"
    write_fleet_key(path)
    path.chmod(mode)
    with pytest.raises(InputError, match="open to other users") as caught:
        read_fleet_key(path)
    assert caught.value.hint == f"chmod 600 {path}"


@pytest.mark.parametrize("data", [b"\xff" * 64, "ü".encode() * 32, b"zz" * 32, b"\0" * 64])
def test_bytes_that_are_no_digits_are_said_in_words(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "fleet.key"
    write_private(path, data)
    with pytest.raises(InputError) as caught:
        read_fleet_key(path)
    assert caught.value.message == f"fleet key {path} is not written in hexadecimal digits, two a byte"


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(InputError, match="is not a regular file"):
            read_fleet_key(path)


def test_a_file_that_is_far_too_long_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    write_private(path, b"")
    os.truncate(path, 2**40)
    with pytest.raises(InputError, match="far longer than a key"):
        read_fleet_key(path)


def test_a_key_that_cannot_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentFault, match=r"fleet\.key: No space left on device"):
        write_fleet_key(tmp_path / "fleet.key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "ü" * 64, "00" * 33])
def test_what_is_no_key_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fleet.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InputError) as caught:
        read_fleet_key(path)
    assert not text or text not in caught.value.message


def write_private(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


def test_a_file_with_two_keys_is_not_the_fleet_key(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    write_private(path, key_lines(new_fleet_key(), new_fleet_key()))
    with pytest.raises(InputError, match="holds 2 keys instead of one"):
        read_fleet_key(path)


class TestKeysBesideIt:
    """While the fleet's key is being replaced."""

    def test_usually_there_is_none(self, tmp_path: Path) -> None:
        key = write_fleet_key(tmp_path / "fleet.key")
        assert read_fleet_keys(tmp_path / "fleet.key") == (key,)

    def test_a_node_signs_with_its_own_and_accepts_those_beside_it(self, tmp_path: Path) -> None:
        path = tmp_path / "fleet.key"
        own, old, new = write_fleet_key(path), new_fleet_key(), new_fleet_key()
        write_private(also_accepted(path), key_lines(new, own, old))
        assert read_keys(also_accepted(path)) == (new, own, old)
        assert read_fleet_keys(path) == (own, new, old)
        assert read_fleet_key(path) == own

    def test_they_must_be_private_and_whole_too(self, tmp_path: Path) -> None:
        path = tmp_path / "fleet.key"
        write_fleet_key(path)
        write_private(also_accepted(path), key_lines(new_fleet_key())[:-10])
        with pytest.raises(InputError, match=r"\.also (is not written|holds)"):
            read_fleet_keys(path)
        write_private(also_accepted(path), key_lines(new_fleet_key()))
        also_accepted(path).chmod(0o644)
        with pytest.raises(InputError, match="open to other users"):
            read_fleet_keys(path)
