from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.sftp_files import SftpFiles, _SftpFile


@pytest.fixture
def files(shared_runner: Any) -> Any:
    runner: FileRunner = shared_runner("openssh")
    with runner.open_files("testing") as opened:
        yield opened


def test_a_created_file_is_private_before_it_has_content(files: SftpFiles, tmp_path: Path) -> None:
    file = files.open(f"{tmp_path}/file", "create")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    file.close()
    with pytest.raises(OSError, match="Failure"):
        files.open(f"{tmp_path}/file", "create")


@pytest.mark.parametrize("size", [0, 1, 128 * 1024, 128 * 1024 + 1, 700_000])
@pytest.mark.parametrize("confirm", [True, False])
def test_writes_of_any_size(files: SftpFiles, tmp_path: Path, size: int, confirm: bool) -> None:
    data = bytes(number % 251 for number in range(size))
    file = files.open(f"{tmp_path}/file", "create")
    file.write(data, confirm=confirm)
    file.write(b"end")
    file.sync()
    file.seek(0)
    assert file.read(size + 10) == data + b"end"
    file.truncate(1)
    file.close()
    assert (tmp_path / "file").stat().st_size == 1


class Client:
    """A client whose server answers the request for a sync with `error`."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def _request(self, *_: object) -> None:
        raise self.error


class Handle:
    handle = b"1"


def test_a_server_that_cannot_sync_is_fine() -> None:
    _SftpFile(Client(OSError("Operation unsupported")), Handle()).sync()


def test_a_sync_that_fails_is_not() -> None:
    with pytest.raises(OSError, match="full"):
        _SftpFile(Client(OSError(errno.ENOSPC, "full")), Handle()).sync()
