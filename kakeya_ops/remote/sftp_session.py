"""SFTP sessions of one connection: one for small files, kept open, and one for each big file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import paramiko

from kakeya_ops.errors import ConnectionLost
from kakeya_ops.remote.sftp_files import SftpFiles

SILENCE_SECONDS = 30.0
"""How long the other side may say nothing to what it was asked."""

Open = Callable[[], paramiko.SFTPClient]


class SftpSessions:
    """Hands out the sessions. `is_alive` tells a file's own failure from that of the connection."""

    def __init__(self, name: str, *, open_small: Open, open_bulk: Open, is_alive: Callable[[], bool]) -> None:
        self._name = name
        self._open_small = open_small
        self._open_bulk = open_bulk
        self._is_alive = is_alive
        self._kept: paramiko.SFTPClient | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def small(self, during: str) -> Iterator[SftpFiles]:
        """The session for small files, one user at a time: its client mixes up answers between threads."""
        with self._lock:
            try:
                if self._kept is None:
                    self._kept = self._open_small()
                with self._translating(during):
                    yield SftpFiles(self._kept)
            except ConnectionLost:
                self._drop()
                raise

    @contextlib.contextmanager
    def bulk(self, during: str) -> Iterator[SftpFiles]:
        """A session of its own for one big file."""
        client = self._open_bulk()
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
        except TimeoutError as error:
            raise ConnectionLost(self._name, f"{during} (nothing came for {SILENCE_SECONDS:g} s)") from error
        except (EOFError, ConnectionError, paramiko.SSHException, paramiko.SFTPError) as error:
            raise ConnectionLost(self._name, during) from error
        except OSError as error:
            if self._is_alive():
                raise
            raise ConnectionLost(self._name, during) from error


def _close(client: paramiko.SFTPClient) -> None:
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        client.close()


__all__ = ["SILENCE_SECONDS", "SftpSessions"]
