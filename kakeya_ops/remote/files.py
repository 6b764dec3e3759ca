"""What is done with files, over whatever can open them: read, replace at once, send and resume.

Failures are `OSError` here; the runners make `RemoteError` of them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import posixpath
import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, Protocol

from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.remote.runner import OUTPUT_LIMIT_BYTES, FileStat, Progress

Access = Literal["read", "create", "update"]
"""``create`` makes a file that must not exist, for its owner alone; ``update`` reads and writes one that does."""

UPLOAD_MODE = 0o644
PRIVATE_MODE = 0o600
"""Of a file until it has its own mode."""
_CHUNK_BYTES = 2**20
_CONFIRM_EVERY_BYTES = 32 * 2**20
_COMPARED_BYTES = 64 * 1024
_PARTIAL_SUFFIX = ".partial"


class OpenFile(Protocol):
    """A file of the host."""

    def read(self, limit_bytes: int) -> bytes:
        """The next bytes; fewer than asked for only at the end."""

    def write(self, data: bytes, *, confirm: bool = True) -> None:
        """Write `data`. Without `confirm` a failure may show only at a later call that confirms."""

    def seek(self, offset: int) -> None:
        """Go on at `offset`."""

    def truncate(self, size_bytes: int) -> None:
        """Cut it to `size_bytes`."""

    def set_mode(self, mode: int) -> None:
        """Set the permission bits."""

    def sync(self) -> None:
        """Have it on disk, if the host can tell."""

    def close(self) -> None:
        """Close it."""


class FileSystem(Protocol):
    """The files of the host; paths are absolute."""

    def lstat(self, path: str) -> FileStat | None:
        """What `path` is, without following a symbolic link; None if there is nothing."""

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""

    def open(self, path: str, access: Access) -> OpenFile:
        """Open a file."""

    def replace(self, source: str, target: str) -> None:
        """Rename `source` to `target`, whether that exists or not, in one step."""

    def remove(self, path: str) -> None:
        """Remove a file."""


def read_file(files: FileSystem, path: str) -> bytes | None:
    """The content of `path`, or None if it does not exist. Raises `OSError` if it is longer than the limit."""
    try:
        file = files.open(path, "read")
    except (FileNotFoundError, NotADirectoryError):
        return None
    parts = bytearray()
    with closing(file):
        while chunk := file.read(_CHUNK_BYTES):
            parts += chunk
            if len(parts) > OUTPUT_LIMIT_BYTES:
                raise OSError(errno.EFBIG, f"is longer than {OUTPUT_LIMIT_BYTES} bytes")
    return bytes(parts)


def list_folder(files: FileSystem, path: str) -> tuple[str, ...] | None:
    """The names in `path`, sorted, or None if it does not exist."""
    try:
        return tuple(sorted(files.listdir(path)))
    except FileNotFoundError:
        return None


def write_file(files: FileSystem, path: str, data: bytes, mode: int) -> None:
    """Make or replace `path` in one step. Nothing of a failed attempt is left, and `data` is never open to others."""
    _refuse_what_is_no_file(files, path)
    folder, name = posixpath.split(path)
    temporary = posixpath.join(folder, f".{name}.{secrets.token_hex(6)}.new")
    try:
        with closing(files.open(temporary, "create")) as file:
            file.write(data)
            file.set_mode(mode)
            file.sync()
        files.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(Exception):
            files.remove(temporary)
        raise


@dataclass(frozen=True, slots=True)
class Source:
    """A file of this machine that is being sent: open, and with what it was when it was opened."""

    path: Path
    file: IO[bytes]
    size_bytes: int
    mtime_ns: int

    @property
    def tag(self) -> str:
        """Tells this state of the file from a later one, in the name of what is unfinished."""
        return hashlib.sha256(f"{self.size_bytes} {self.mtime_ns}".encode()).hexdigest()[:12]

    def changed(self) -> bool:
        """Whether it was written to since it was opened."""
        now = os.fstat(self.file.fileno())
        return (now.st_size, now.st_mtime_ns) != (self.size_bytes, self.mtime_ns)


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open `path` of this machine for `upload_file`. Raises `EnvironmentFault` if that is not possible."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    with file:
        status = os.fstat(file.fileno())
        yield Source(path, file, status.st_size, status.st_mtime_ns)


def upload_file(files: FileSystem, source: Source, target: str, progress: Progress) -> None:
    """Make or replace `target` with `source` in one step at the end; go on where an earlier attempt ended."""
    _refuse_what_is_no_file(files, target)
    partial = _partial_path(target, source)
    _remove_stale_partials(files, target, keep=partial)
    with closing(_open_partial(files, partial)) as file:
        _send(file, source, _resume_offset(files, file, partial, source), progress)
        if source.changed():
            files.remove(partial)
            raise OSError(f"{source.path} was changed while it was sent")
        file.set_mode(UPLOAD_MODE)
        file.sync()
    files.replace(partial, target)


def _send(file: OpenFile, source: Source, offset: int, progress: Progress) -> None:
    """Write `source` from `offset` on; after a refusal by the host, keep only what it surely has."""
    file.seek(offset)
    file.truncate(offset)
    source.file.seek(offset)
    progress(offset)
    confirmed = offset
    try:
        while chunk := source.file.read(_CHUNK_BYTES):
            offset += len(chunk)
            confirm = offset - confirmed >= _CONFIRM_EVERY_BYTES or offset >= source.size_bytes
            file.write(chunk, confirm=confirm)
            confirmed = offset if confirm else confirmed
            progress(offset)
    except OSError:
        with contextlib.suppress(Exception):
            file.truncate(confirmed)
        raise


def _partial_path(target: str, source: Source) -> str:
    folder, name = posixpath.split(target)
    return posixpath.join(folder, f".{name}.{source.tag}{_PARTIAL_SUFFIX}")


def _remove_stale_partials(files: FileSystem, target: str, keep: str) -> None:
    folder, name = posixpath.split(target)
    for found in files.listdir(folder):
        path = posixpath.join(folder, found)
        if found.startswith(f".{name}.") and found.endswith(_PARTIAL_SUFFIX) and path != keep:
            files.remove(path)


def _open_partial(files: FileSystem, partial: str) -> OpenFile:
    status = files.lstat(partial)
    if status is not None and status.kind != "file":
        files.remove(partial)
        status = None
    return files.open(partial, "create" if status is None else "update")


def _resume_offset(files: FileSystem, file: OpenFile, partial: str, source: Source) -> int:
    """How many bytes need not be sent again: all that are there, if the last of them are the source's."""
    status = files.lstat(partial)
    have = status.size_bytes if status else 0
    start = max(have - _COMPARED_BYTES, 0)
    file.seek(start)
    source.file.seek(start)
    same = have <= source.size_bytes and file.read(have - start) == source.file.read(have - start)
    return have if same else 0


def _refuse_what_is_no_file(files: FileSystem, path: str) -> None:
    status = files.lstat(path)
    if status is not None and status.kind != "file":
        what = {"symlink": "a symbolic link", "folder": "a folder"}.get(status.kind, "no regular file")
        raise OSError(f"is {what}, and is left alone")


__all__ = [
    "PRIVATE_MODE",
    "UPLOAD_MODE",
    "Access",
    "FileSystem",
    "OpenFile",
    "Source",
    "list_folder",
    "open_source",
    "read_file",
    "upload_file",
    "write_file",
]
