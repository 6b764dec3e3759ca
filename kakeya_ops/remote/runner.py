"""What every connection to a host can do, whatever carries it. Each method may raise a `RemoteError`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

OUTPUT_LIMIT_BYTES = 16 * 2**20
"""The most that is taken in of one stream of a command, and of one file that is read."""
RUN_TIMEOUT_SECONDS = 30.0

FileKind = Literal["file", "folder", "symlink", "other"]
Progress = Callable[[int], None]
"""Called with the bytes that are at the target so far; the first call tells how many were there already."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended: `status` is 0 to 255 as a shell counts, so 127 is not found and 128 + n is signal n.

    Over ssh a signal may also be 255: where the login shell became the command, nobody is left to count.
    """

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; what is not UTF-8 is replaced."""
        return self.stdout.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class FileStat:
    """A path's own properties, not those of what a symbolic link leads to. `mode` is its permission bits."""

    kind: FileKind
    mode: int
    size_bytes: int
    mtime_seconds: int


class Runner(Protocol):
    """A connection to one host. It may be used from several threads, and connects again after it was lost.

    Paths are absolute or begin with ``~/``, which is the host's home folder; they are expanded here and nowhere else.
    """

    @property
    def name(self) -> str:
        """The host's name, for messages."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about how the host is reached, such as settings that chose the way."""

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes = b"",
        timeout_seconds: float = RUN_TIMEOUT_SECONDS,
        check: bool = False,
    ) -> Result:
        """Run `argv` in the home folder, with `input` as its standard input.

        No element is read by a shell or expanded. Raises `CommandFailed` if `check` and the status is not 0, or if a
        stream is longer than `OUTPUT_LIMIT_BYTES`; `CommandTimeout`; `ConnectionLost`.
        """

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None if there is none. Raises `TransferFailed` over `OUTPUT_LIMIT_BYTES`."""

    def stat(self, path: str) -> FileStat | None:
        """What `path` is, without following a symbolic link; None if it does not exist."""

    def listdir(self, path: str) -> tuple[str, ...] | None:
        """The names in a folder, sorted; None if it does not exist."""

    def write(self, path: str, data: bytes, mode: int) -> None:
        """Make or replace a small file at once: whoever reads it sees the old content or the new, never less.

        The folder must exist. Never writes through a symbolic link; `mode` holds whatever the umask is.
        """

    def upload(self, source: Path, target: str, *, progress: Progress) -> None:
        """Make or replace `target` with the big file `source`, mode 0644, at once when everything is there.

        What arrived before an interruption is kept beside it, and the next call sends only the rest.
        Raises `EnvironmentFault` if `source` cannot be read.
        """

    def expand(self, path: str) -> str:
        """`path` with ``~`` as the host's home folder. Raises `InputError` if it is relative."""

    def home(self) -> str:
        """The home folder: ``$HOME`` of a session there."""

    def close(self) -> None:
        """End the connection; a later call of another method opens it again."""


__all__ = ["OUTPUT_LIMIT_BYTES", "RUN_TIMEOUT_SECONDS", "FileKind", "FileStat", "Progress", "Result", "Runner"]
