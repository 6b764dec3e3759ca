"""The files of a host, by the SFTP client of paramiko over any stream: its own channel, or the system's ssh."""

from __future__ import annotations

from typing import Any

import paramiko
from paramiko.sftp import CMD_EXTENDED

from kakeya_ops.remote.files import PRIVATE_MODE, Access, OpenFile
from kakeya_ops.remote.local_files import file_stat
from kakeya_ops.remote.runner import FileStat

_MODES: dict[Access, str] = {"read": "r", "create": "w+x", "update": "r+"}
_WRITE_BYTES = 128 * 1024
"""Of one request. OpenSSH takes up to twice as much; more in each means less to do for each byte."""


class SftpFiles:
    """`FileSystem` of the host at the other end of `client`."""

    def __init__(self, client: paramiko.SFTPClient) -> None:
        self._client = client

    def lstat(self, path: str) -> FileStat | None:
        """What `path` is, without following a symbolic link; None if there is nothing."""
        try:
            status = self._client.lstat(path)
        except FileNotFoundError:
            return None
        return file_stat(status.st_mode or 0, status.st_size or 0, int(status.st_mtime or 0))

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""
        return list(self._client.listdir(path))

    def open(self, path: str, access: Access) -> OpenFile:
        """Open a file."""
        file = _SftpFile(self._client, self._client.open(path, _MODES[access]))
        if access == "create":
            file.set_mode(PRIVATE_MODE)  # the protocol has a mode for this, but the client does not send it
        return file

    def replace(self, source: str, target: str) -> None:
        """Rename `source` to `target`, whether that exists or not, in one step."""
        self._client.posix_rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._client.remove(path)


class _SftpFile:
    def __init__(self, client: paramiko.SFTPClient, file: Any) -> None:
        self._client = client
        self._file = file
        self._file.MAX_REQUEST_SIZE = _WRITE_BYTES

    def read(self, limit_bytes: int) -> bytes:
        return bytes(self._file.read(limit_bytes))

    def write(self, data: bytes, *, confirm: bool = True) -> None:
        rest = memoryview(data)
        # The client looks at the answers to all earlier writes when it makes one that is not pipelined.
        last = max(len(rest) - _WRITE_BYTES, 0) if confirm else len(rest)
        for part, pipelined in ((rest[:last], True), (rest[last:], False)):
            if part:
                self._file.set_pipelined(pipelined)
                self._file.write(part)

    def seek(self, offset: int) -> None:
        self._file.seek(offset)

    def truncate(self, size_bytes: int) -> None:
        self._file.truncate(size_bytes)

    def set_mode(self, mode: int) -> None:
        self._file.chmod(mode)

    def sync(self) -> None:
        try:
            self._client._request(CMD_EXTENDED, "fsync@openssh.com", self._file.handle)
        except OSError as error:
            if "unsupported" not in str(error).lower():  # OpenSSH has this extension; others may lack it
                raise

    def close(self) -> None:
        self._file.close()


__all__ = ["SftpFiles"]
