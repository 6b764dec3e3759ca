"""What the runners have in common: paths, files, and the ends of commands."""

from __future__ import annotations

import contextlib
import errno
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from kakeya_ops.errors import CommandFailed, CommandTimeout, InputError, TransferFailed
from kakeya_ops.remote.files import FileSystem, list_folder, open_source, read_file, upload_file, write_file
from kakeya_ops.remote.process import Ending
from kakeya_ops.remote.quoting import check_argv
from kakeya_ops.remote.runner import RUN_TIMEOUT_SECONDS, FileStat, Progress, Result

_STDERR_CHARACTERS = 2000
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileRunner(ABC):
    """A `Runner` that can open a `FileSystem` and run an argv; the rest is made of these two."""

    def __init__(self, name: str, notes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.notes = notes
        self._home: str | None = None

    @abstractmethod
    def close(self) -> None:
        """See `Runner.close`."""

    @abstractmethod
    def open_files(self, during: str, *, bulk: bool = False) -> AbstractContextManager[FileSystem]:
        """The host's files; `bulk` for one big file that must not hold up others."""

    @abstractmethod
    def _run(self, argv: tuple[str, ...], input: bytes, timeout_seconds: float) -> tuple[Ending, Result]:
        """Run `argv`. Raises `RemoteError` only for what is not the command's own doing."""

    @property
    def _ends_commands(self) -> bool:
        """Whether a command that takes too long is surely stopped."""
        return False

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        timeout_seconds: float = RUN_TIMEOUT_SECONDS,
        check: bool = False,
    ) -> Result:
        """See `Runner.run`."""
        words = check_argv(argv)
        ending, result = self._run(words, input, timeout_seconds)
        if ending == "timeout":
            raise CommandTimeout(self.name, words, timeout_seconds, ended=self._ends_commands)
        if ending == "overflow":
            raise CommandFailed(self.name, words, None, "it wrote more than is taken in")
        if check and result.status != 0:
            raise CommandFailed(self.name, words, result.status, printable_tail(result.stderr))
        return result

    def home(self) -> str:
        """See `Runner.home`."""
        if self._home is None:
            # launchd and the shell go by $HOME; SFTP would tell where it happens to begin.
            self._home = self.run(["sh", "-c", 'printf %s "$HOME"'], check=True).text
        return self._home

    def expand(self, path: str) -> str:
        """See `Runner.expand`."""
        if path == "~" or path.startswith("~/"):
            return self.home().rstrip("/") + path[1:]
        if not path.startswith("/") or "\0" in path:
            raise InputError(f"{path!r} is not a path on {self.name}: it must begin with / or ~/")
        return path

    def read(self, path: str) -> bytes | None:
        """See `Runner.read`."""
        with self._files_at(path) as (files, expanded):
            return read_file(files, expanded)

    def stat(self, path: str) -> FileStat | None:
        """See `Runner.stat`."""
        with self._files_at(path) as (files, expanded):
            return files.lstat(expanded)

    def listdir(self, path: str) -> tuple[str, ...] | None:
        """See `Runner.listdir`."""
        with self._files_at(path) as (files, expanded):
            return list_folder(files, expanded)

    def write(self, path: str, data: bytes, mode: int) -> None:
        """See `Runner.write`."""
        with self._files_at(path) as (files, expanded):
            write_file(files, expanded, data, mode)

    def upload(self, source: Path, target: str, *, progress: Progress) -> None:
        """See `Runner.upload`."""
        with open_source(source) as opened, self._files_at(target, bulk=True) as (files, expanded):
            upload_file(files, opened, expanded, progress)

    @contextlib.contextmanager
    def _files_at(self, path: str, *, bulk: bool = False) -> Iterator[tuple[FileSystem, str]]:
        expanded = self.expand(path)
        try:
            with self.open_files(f"{expanded} was at work", bulk=bulk) as files:
                yield files, expanded
        except OSError as error:
            raise TransferFailed(self.name, expanded, _reason(error), hint=_hint(error, expanded)) from error


def printable_tail(stream: bytes) -> str:
    """The end of what a command said, without anything that a terminal would obey."""
    text = stream.decode(errors="replace").strip()[-_STDERR_CHARACTERS:]
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def _reason(error: OSError) -> str:
    if _is_vague(error):
        return "the host refused it without a reason"
    return error.strerror or str(error) or type(error).__name__


def _hint(error: OSError, path: str) -> str | None:
    folder = shlex.quote(path.rpartition("/")[0] or "/")
    if isinstance(error, FileNotFoundError):
        return f"make the folder first: mkdir -p {folder}"
    # SFTP has no word of its own for a full disk.
    return f"is there room? df -h {folder}" if _is_vague(error) or error.errno in _NO_ROOM else None


def _is_vague(error: OSError) -> bool:
    return str(error) == "Failure"


__all__ = ["FileRunner", "printable_tail"]
