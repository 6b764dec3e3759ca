"""What every runner does with files is tried in `test_runner`; here is what only shows from inside."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.remote import files
from kakeya_ops.remote.files import open_source, read_file, upload_file, write_file
from kakeya_ops.remote.local_files import LocalFiles
from sshd import hidden_files


class Unwilling(LocalFiles):
    """Files that can all be written, and never take their final name."""

    def replace(self, source: str, target: str) -> None:
        raise OSError(errno.EACCES, "no")


def test_a_failure_at_the_last_step_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    with pytest.raises(OSError, match="no"):
        write_file(Unwilling(), f"{tmp_path}/target", b"new", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target").read_bytes() == b"old"


def test_a_finished_upload_that_lacks_only_its_name_is_not_sent_again(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * 3_000_000)
    steps: list[int] = []
    with open_source(tmp_path / "source") as source, pytest.raises(OSError, match="no"):
        upload_file(Unwilling(), source, f"{tmp_path}/target", lambda _: None)
    with open_source(tmp_path / "source") as source:
        upload_file(LocalFiles(), source, f"{tmp_path}/target", steps.append)
    assert steps == [3_000_000]
    assert (tmp_path / "target").read_bytes() == (tmp_path / "source").read_bytes()


def test_a_link_in_the_place_of_the_partial_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "precious").write_bytes(b"precious")
    with open_source(tmp_path / "source") as source:
        (tmp_path / f".target.{source.tag}.partial").symlink_to("precious")
        upload_file(LocalFiles(), source, f"{tmp_path}/target", lambda _: None)
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "target").is_symlink()


def test_writes_are_confirmed_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a full disk would show after everything was sent, and with holes."""
    monkeypatch.setattr(files, "_CHUNK_BYTES", 10)
    monkeypatch.setattr(files, "_CONFIRM_EVERY_BYTES", 30)
    confirmed: list[bool] = []
    from kakeya_ops.remote import local_files

    write = local_files._LocalFile.write

    def note(self: local_files._LocalFile, data: bytes, *, confirm: bool = True) -> None:
        confirmed.append(confirm)
        write(self, data)

    monkeypatch.setattr(local_files._LocalFile, "write", note)
    (tmp_path / "source").write_bytes(bytes(75))
    with open_source(tmp_path / "source") as source:
        upload_file(LocalFiles(), source, f"{tmp_path}/target", lambda _: None)
    assert confirmed == [False, False, True, False, False, True, False, True]


def test_sources(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot read"), open_source(tmp_path / "none"):
        pass
    path = tmp_path / "source"
    path.write_bytes(b"1")
    with open_source(path) as source:
        first = source.tag
        assert not source.changed()
        path.write_bytes(b"12")
        assert source.changed()
    with open_source(path) as source:
        assert source.tag != first
    assert read_file(LocalFiles(), f"{tmp_path}/source/below") is None


def test_what_was_not_confirmed_before_a_refusal_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that refused one of several writes on their way has a hole, which the next attempt would trust."""
    monkeypatch.setattr(files, "_CHUNK_BYTES", 10)
    monkeypatch.setattr(files, "_CONFIRM_EVERY_BYTES", 30)
    from kakeya_ops.remote import local_files

    write = local_files._LocalFile.write
    written: list[int] = []

    def lose_the_fifth(self: local_files._LocalFile, data: bytes, *, confirm: bool = True) -> None:
        written.append(len(data))
        if len(written) == 5:
            self._file.seek(len(data), os.SEEK_CUR)
            return
        write(self, data)
        if confirm and len(written) > 5:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(local_files._LocalFile, "write", lose_the_fifth)
    (tmp_path / "source").write_bytes(b"x" * 75)
    with open_source(tmp_path / "source") as source, pytest.raises(OSError, match="full"):
        upload_file(LocalFiles(), source, f"{tmp_path}/target", lambda _: None)
    [partial] = hidden_files(tmp_path)
    assert (tmp_path / partial).read_bytes() == b"x" * 30
