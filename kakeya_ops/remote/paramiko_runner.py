"""A host by paramiko: one connection for everything, and the system's ssh for big files where there is one."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import paramiko

from kakeya_ops.errors import ConnectFailed, ConnectionLost, TransferFailed
from kakeya_ops.remote.channel_exchange import ChannelExchange
from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.files import FileSystem
from kakeya_ops.remote.paramiko_session import open_transport
from kakeya_ops.remote.process import Ending
from kakeya_ops.remote.quoting import quote_command
from kakeya_ops.remote.runner import Result
from kakeya_ops.remote.sftp_session import SILENCE_SECONDS, SftpSessions
from kakeya_ops.remote.ssh_config import ResolvedSsh

_ENDED_BY_SIGNAL = 255
_SESSION_SECONDS = 2.0
_PAUSE_SECONDS = 0.05


class ParamikoRunner(FileRunner):
    """A `Runner` for hosts whose configuration paramiko can honour; `bulk` is the one for big files."""

    def __init__(self, name: str, ssh: ResolvedSsh, bulk: FileRunner | None = None) -> None:
        super().__init__(name, ssh.notes)
        self._ssh = ssh
        self._bulk = bulk
        self._transport: paramiko.Transport | None = None
        self._connecting = threading.Lock()
        self._sessions = SftpSessions(name, self)

    def open(self) -> None:
        """Connect, if not connected. Raises `ConnectFailed`, `HostKeyRejected`, `AuthenticationFailed`."""
        self._connected()

    def close(self) -> None:
        """See `Runner.close`."""
        if self._bulk is not None:
            self._bulk.close()
        self._sessions.close()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _run(self, argv: tuple[str, ...], input: bytes, timeout_seconds: float) -> tuple[Ending, Result]:
        deadline = time.monotonic() + timeout_seconds
        channel = self._open_channel(timeout_seconds)
        try:
            channel.exec_command(os.fsencode(quote_command(argv)))
            exchange = ChannelExchange(channel, input)
            ending = exchange.carry_out(deadline)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise ConnectionLost(self.name, f"{argv[0]} was started") from error
        finally:
            channel.close()
        status = channel.exit_status
        if ending == "exit" and status < 0:
            if not self.is_alive():
                raise ConnectionLost(self.name, f"{argv[0]} was running")
            status = _ENDED_BY_SIGNAL
        return ending, Result(status, bytes(exchange.stdout), bytes(exchange.stderr))

    @contextlib.contextmanager
    def open_files(self, during: str, *, bulk: bool = False) -> Iterator[FileSystem]:
        """The host's files, by SFTP."""
        if bulk and self._bulk is not None:
            with self._bulk.open_files(during, bulk=True) as files:
                yield files
            return
        with self._sessions.bulk(during) if bulk else self._sessions.small(during) as files:
            yield files

    def _connected(self) -> paramiko.Transport:
        with self._connecting:
            if self._transport is None or not self.is_alive():
                self._sessions.close()
                self._transport = open_transport(self.name, self._ssh)
            return self._transport

    def is_alive(self) -> bool:
        """Whether it is connected, as far as is known."""
        return self._transport is not None and self._transport.is_active()

    def _open_channel(self, timeout_seconds: float) -> Any:
        """A new session, of a new connection if the old one turns out to be broken: nothing was asked of it yet."""
        transport = self._connected()
        try:
            return self._open_session(transport, timeout_seconds)
        except (paramiko.SSHException, EOFError, OSError):
            # This one, and not one that another thread may have opened meanwhile and works on.
            transport.close()
        try:
            return self._open_session(self._connected(), timeout_seconds)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise ConnectionLost(self.name, "a session was opened") from error

    def _open_session(self, transport: paramiko.Transport, timeout_seconds: float) -> Any:
        """A new session; if the server allows no more of them, instead of the idle one for files."""
        deadline = time.monotonic() + _SESSION_SECONDS
        while True:
            try:
                return transport.open_session(timeout=timeout_seconds)
            except paramiko.ChannelException as error:
                # The server needs a moment until it counts a session that was closed as gone.
                if not self._sessions.release() and time.monotonic() > deadline:
                    raise ConnectFailed(self.name, f"the server refuses another session ({error.text})") from error
                time.sleep(_PAUSE_SECONDS)

    def abandon(self) -> None:
        """Give the connection up; the next call makes another one."""
        if self._transport is not None:
            self._transport.close()

    def open_small(self) -> paramiko.SFTPClient:
        """A session for files."""
        channel = self._open_channel(SILENCE_SECONDS)
        channel.settimeout(SILENCE_SECONDS)
        try:
            channel.invoke_subsystem("sftp")
            return paramiko.SFTPClient(channel)
        except (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError) as error:
            channel.close()
            if not self.is_alive():
                raise ConnectionLost(self.name, "SFTP was started") from error
            raise TransferFailed(
                self.name, "SFTP", f"cannot be used: {error}", hint="does the login shell print anything?"
            ) from error

    def open_bulk(self) -> paramiko.SFTPClient:
        """One more session for files."""
        return self.open_small()


__all__ = ["ParamikoRunner"]
