"""This machine, as if it were another one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.files import FileSystem
from kakeya_ops.remote.local_files import LocalFiles
from kakeya_ops.remote.process import Ending, run_process
from kakeya_ops.remote.runner import Result
from kakeya_ops.settings import expand_here

_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SIGNAL_BASE = 128


class LocalRunner(FileRunner):
    """A `Runner` without a connection. What takes too long is killed, with its children."""

    @property
    def _ends_commands(self) -> bool:
        return True

    def home(self) -> str:
        """See `Runner.home`."""
        return str(expand_here("~"))

    def close(self) -> None:
        """Nothing is open."""

    def _run(self, argv: tuple[str, ...], input: bytes, timeout_seconds: float) -> tuple[Ending, Result]:
        try:
            done = run_process(argv, input=input, timeout_seconds=timeout_seconds, folder=Path(self.home()))
        except FileNotFoundError:
            return "exit", Result(_NOT_FOUND, b"", f"{argv[0]}: not found\n".encode())
        except OSError as error:
            return "exit", Result(_NOT_EXECUTABLE, b"", f"{argv[0]}: {error.strerror}\n".encode())
        status = done.status if done.status >= 0 else _SIGNAL_BASE - done.status
        return done.ending, Result(status, done.stdout, done.stderr)

    @contextlib.contextmanager
    def open_files(self, during: str, *, bulk: bool = False) -> Iterator[FileSystem]:
        """This machine's files."""
        yield LocalFiles()


__all__ = ["LocalRunner"]
