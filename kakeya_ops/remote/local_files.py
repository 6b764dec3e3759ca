"""The files of this machine, as `kakeya_ops.remote.files` wants them."""

from __future__ import annotations

import os
import stat
from io import FileIO

from kakeya_ops.remote.files import PRIVATE_MODE, Access, OpenFile
from kakeya_ops.remote.runner import FileKind, FileStat

_FLAGS: dict[Access, int] = {
    "read": os.O_RDONLY,
    "create": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "update": os.O_RDWR | os.O_NOFOLLOW,
}
_MODES: dict[Access, str] = {"read": "r", "create": "r+", "update": "r+"}


class LocalFiles:
    """`FileSystem` of this machine."""

    def lstat(self, path: str) -> FileStat | None:
        """What `path` is, without following a symbolic link; None if there is nothing."""
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return file_stat(status.st_mode, status.st_size, int(status.st_mtime))

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""
        return os.listdir(path)

    def open(self, path: str, access: Access) -> OpenFile:
        """Open a file."""
        flags = _FLAGS[access] | os.O_CLOEXEC
        return _LocalFile(FileIO(path, _MODES[access], opener=lambda name, _: os.open(name, flags, PRIVATE_MODE)))

    def replace(self, source: str, target: str) -> None:
        """Rename `source` to `target`, whether that exists or not, in one step."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)


class _LocalFile:
    def __init__(self, file: FileIO) -> None:
        self._file = file

    def read(self, limit_bytes: int) -> bytes:
        return self._file.read(limit_bytes) or b""

    def write(self, data: bytes, *, confirm: bool = True) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def truncate(self, size_bytes: int) -> None:
        self._file.truncate(size_bytes)

    def set_mode(self, mode: int) -> None:
        os.fchmod(self._file.fileno(), mode)

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def file_stat(mode: int, size_bytes: int, mtime_seconds: int) -> FileStat:
    """The `FileStat` of what `os.lstat` and SFTP both tell."""
    kinds: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}
    return FileStat(kinds.get(stat.S_IFMT(mode), "other"), stat.S_IMODE(mode), size_bytes, mtime_seconds)


__all__ = ["LocalFiles", "file_stat"]
