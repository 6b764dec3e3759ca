from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kakeya_ops.remote.local_files import LocalFiles, file_stat


def test_update_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        LocalFiles().open(f"{tmp_path}/link", "update")


def test_create_makes_a_private_file_that_must_not_exist(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        LocalFiles().open(f"{tmp_path}/file", "create").close()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        LocalFiles().open(f"{tmp_path}/file", "create")


def test_stat() -> None:
    assert file_stat(stat.S_IFREG | 0o4755, 3, 4).mode == 0o4755
    assert file_stat(stat.S_IFSOCK | 0o600, 0, 0).kind == "other"
