"""SFTP sessions of one connection: one for small files, kept open, and one for each big file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol

import paramiko

from kakeya_ops.errors import ConnectionLost
from kakeya_ops.remote.sftp_files import SftpFiles

SILENCE_SECONDS = 30.0
"""How long the other side may say nothing to what it was asked."""


class Connection(Protocol):
    """What the sessions belong to."""

    def open_small(self) -> paramiko.SFTPClient:
        """Open the session for small files."""

    def open_bulk(self) -> paramiko.SFTPClient:
        """Open a session for one big file."""

    def is_alive(self) -> bool:
        """Whether it still stands, so that a failure was the file's own."""

    def abandon(self) -> None:
        """Give it up: it broke. The next session opens another one."""


class SftpSessions:
    """Hands out the sessions of `connection`."""

    def __init__(self, name: str, connection: Connection) -> None:
        self._name = name
        self._connection = connection
        self._kept: paramiko.SFTPClient | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def small(self, during: str) -> Iterator[SftpFiles]:
        """The session for small files, one user at a time: its client mixes up answers between threads."""
        with self._lock:
            if self._kept is None:
                self._kept = self._connection.open_small()
            with self._translating(during):
                yield SftpFiles(self._kept)

    @contextlib.contextmanager
    def bulk(self, during: str) -> Iterator[SftpFiles]:
        """A session of its own for one big file."""
        client = self._connection.open_bulk()
        try:
            with self._translating(during):
                yield SftpFiles(client)
        finally:
            _close(client)

    def release(self) -> bool:
        """Close the kept session if nobody uses it; True if there is one less now."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._drop()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the kept session; whoever uses it finds the connection lost."""
        self._drop()

    def _drop(self) -> bool:
        kept, self._kept = self._kept, None
        if kept is not None:
            _close(kept)
        return kept is not None

    @contextlib.contextmanager
    def _translating(self, during: str) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError, paramiko.SSHException, paramiko.SFTPError) as error:
            if _is_of_a_file(error) and self._connection.is_alive():
                raise
            self._drop()
            self._connection.abandon()
            silent = f" (nothing came for {SILENCE_SECONDS:g} s)" if isinstance(error, TimeoutError) else ""
            raise ConnectionLost(self._name, f"{during}{silent}") from error


def _is_of_a_file(error: Exception) -> bool:
    return isinstance(error, OSError) and not isinstance(error, TimeoutError | ConnectionError)


def _close(client: paramiko.SFTPClient) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        client.close()


__all__ = ["SILENCE_SECONDS", "Connection", "SftpSessions"]
