"""A host by the system's ssh: one master connection in a private folder, and a session of it for each command."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import paramiko

from kakeya_ops.errors import ConnectionLost, RemoteError
from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.files import FileSystem
from kakeya_ops.remote.openssh_errors import connect_error, find_complaint, host_key_error
from kakeya_ops.remote.process import Ending, kill_group, run_process
from kakeya_ops.remote.quoting import quote_command
from kakeya_ops.remote.runner import Result
from kakeya_ops.remote.sftp_session import SILENCE_SECONDS, SftpSessions
from kakeya_ops.remote.ssh_config import ResolvedSsh

_SSH_FAILED = 255
_CHECK_SECONDS = 5.0
_LEAVE_SECONDS = 2.0
_BUFFER_BYTES = 2**20
_LONGEST_FOLDER = 60
_LOGIN_SECONDS = 20.0

# Ours, whatever the configuration says: nobody is asked, nothing is trusted anew, nothing is forwarded.
_FIXED = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "ControlPersist": "no",
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
}


class OpenSshRunner(FileRunner):
    """A `Runner` for hosts whose configuration asks for what only the system's ssh can do."""

    def __init__(self, name: str, ssh: ResolvedSsh, notes: tuple[str, ...] = ()) -> None:
        super().__init__(name, notes)
        assert ssh.program is not None
        self._ssh = ssh
        self._program = ssh.program
        self._folder: Path | None = None
        self._master: _SftpProcess | None = None
        self._first: paramiko.SFTPClient | None = None
        self._connecting = threading.Lock()
        self._sessions = SftpSessions(name, self)

    def open(self) -> None:
        """Connect, if not connected. Raises `ConnectFailed`, `HostKeyRejected`, `AuthenticationFailed`."""
        self._control_path()

    def close(self) -> None:
        """See `Runner.close`."""
        self._sessions.close()
        master, self._master, self._first = self._master, None, None
        folder, self._folder = self._folder, None
        if master is not None:
            master.close()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _run(self, argv: tuple[str, ...], input: bytes, timeout_seconds: float) -> tuple[Ending, Result]:
        command = quote_command(argv)
        ssh = self._argv("no", self._control_path(), log_level="FATAL")
        done = run_process([*ssh, "--", self._ssh.target.host, command], input=input, timeout_seconds=timeout_seconds)
        status = done.status if done.status >= 0 else _SSH_FAILED
        if done.ending == "exit" and status == _SSH_FAILED and not self._answers():
            self.close()
            raise ConnectionLost(self.name, f"{argv[0]} was running")
        return done.ending, Result(status, done.stdout, done.stderr)

    @contextlib.contextmanager
    def open_files(self, during: str, *, bulk: bool = False) -> Iterator[FileSystem]:
        """The host's files, by SFTP."""
        with self._sessions.bulk(during) if bulk else self._sessions.small(during) as files:
            yield files

    def _argv(self, master: str, control_path: Path, *, log_level: str = "ERROR") -> list[str]:
        """Call ssh with everything but the host and what to do there."""
        settings = {
            **_FIXED,
            "ConnectTimeout": f"{self._ssh.connect_timeout_seconds:.0f}",
            "ControlMaster": master,
            "ControlPath": str(control_path),
            "LogLevel": log_level,
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        return [self._program, *options, *self._ssh.target.options(), "-T"]

    def _control_path(self) -> Path:
        """The socket of the master connection, which is made if there is none."""
        with self._connecting:
            if self._folder is None or not self.is_alive():
                self.close()
                self._connect()
            assert self._folder is not None
            return self._folder / "m"

    def _connect(self) -> None:
        """Start the master. Its own session is an SFTP one: when that answers, everything else works too."""
        self._folder = _private_folder()
        argv = [*self._argv("yes", self._folder / "m"), "-s", "--", self._ssh.target.host, "sftp"]
        master = _SftpProcess(argv, _LOGIN_SECONDS + self._ssh.connect_timeout_seconds)
        try:
            self._first = master.start_sftp()
        except (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError) as error:
            master.close()
            self.close()
            raise self._why_not(master.said) from error
        self._master = master

    def _why_not(self, said: str) -> RemoteError:
        complaint = find_complaint(said, self._ssh)
        if complaint is None:
            return connect_error(self.name, self._ssh, said)
        if not complaint.fingerprint:
            complaint = find_complaint(self._say_more(), self._ssh) or complaint
        return host_key_error(self.name, self._ssh, complaint)

    def _say_more(self) -> str:
        """What ssh says when it is to be talkative: only then it shows the key that it refuses."""
        argv = [*self._argv("no", Path("none"), log_level="DEBUG1"), "--", self._ssh.target.host, "true"]
        done = run_process(argv, timeout_seconds=_LOGIN_SECONDS)
        return done.stderr.decode(errors="replace")

    def is_alive(self) -> bool:
        """Whether it is connected, as far as is known."""
        return self._master is not None and self._master.is_running

    def _answers(self) -> bool:
        """Whether the master still has its connection; asked from itself, as it ends only a moment after that broke."""
        if self._folder is None or not self.is_alive():
            return False
        argv = [*self._argv("no", self._folder / "m"), "-O", "check", "--", self._ssh.target.host]
        return run_process(argv, timeout_seconds=_CHECK_SECONDS).status == 0

    def abandon(self) -> None:
        """Give the connection up; the next call makes another one."""
        self.close()

    def open_small(self) -> paramiko.SFTPClient:
        """The session of the master itself."""
        self._control_path()
        return self._first

    def open_bulk(self) -> paramiko.SFTPClient:
        """One more session for files."""
        argv = [*self._argv("no", self._control_path()), "-s", "--", self._ssh.target.host, "sftp"]
        process = _SftpProcess(argv, SILENCE_SECONDS)
        try:
            return process.start_sftp()
        except (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError) as error:
            process.close()
            raise ConnectionLost(self.name, f"SFTP was started ({process.said.strip() or error})") from error


class _SftpProcess:
    """An ssh process whose input and output are an SFTP session; looks like a channel to paramiko's client."""

    def __init__(self, argv: list[str], silence_seconds: float) -> None:
        ours, theirs = socket.socketpair()
        for side in (ours, theirs):  # macOS gives them 8 KiB
            side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            side.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        ours.settimeout(silence_seconds)
        self._socket = ours
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        self.said = ""
        with theirs:
            end = theirs.fileno()
            self._process = subprocess.Popen(argv, stdin=end, stdout=end, stderr=self._errors, start_new_session=True)

    def start_sftp(self) -> paramiko.SFTPClient:
        """Wait until the other side speaks SFTP. Raises `EOFError` if ssh ended instead."""
        client = paramiko.SFTPClient(self)
        self._socket.settimeout(SILENCE_SECONDS)
        return client

    @property
    def is_running(self) -> bool:
        """Whether ssh has not ended."""
        return self._process.poll() is None

    def send(self, data: bytes) -> int:
        """As a socket does."""
        return self._socket.send(data)

    def recv(self, limit_bytes: int) -> bytes:
        """As a socket does."""
        return self._socket.recv(limit_bytes)

    def recv_ready(self) -> bool:
        """Whether `recv` would not wait."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def get_name(self) -> str:
        """For the client's log."""
        return "ssh"

    def close(self) -> None:
        """End ssh, and keep what it said."""
        self._socket.close()
        if self._errors.closed:
            return
        try:
            self._process.wait(_LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            kill_group(self._process)
            self._process.wait()
        self._errors.seek(0)
        self.said = self._errors.read().decode(errors="replace")
        self._errors.close()


def _private_folder() -> Path:
    """A new folder for the master's socket, whose path has to be short."""
    usual = tempfile.gettempdir()
    parent = usual if len(os.fsencode(usual)) <= _LONGEST_FOLDER else "/tmp"
    return Path(tempfile.mkdtemp(prefix="kakeya-", dir=parent))


__all__ = ["OpenSshRunner"]
