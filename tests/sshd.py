"""A real OpenSSH server on a free port of loopback, for whoever runs the tests, with a home folder of its own.

A session has ``HOME`` set to that folder, begins in it, and gets its commands from the chosen login shell. Clients are
told everything by a configuration file (`SshServer.write_config`), so that nobody's own ``~/.ssh`` is looked at.
"""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ports import choose_ports
from system_packages import require

HOST = "127.0.0.1"
_DEADLINE_SECONDS = 60.0
_SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/libexec/sftp-server")


@dataclass(frozen=True)
class Knobs:
    """How the server behaves; by default like the one of a Mac with Remote Login."""

    settings: Mapping[str, str | int] = field(default_factory=dict)
    """Lines of its configuration, such as ``{"MaxSessions": 1}``; they win over those that are there by default."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a session finds in its environment, besides ``HOME``."""
    shell: str = "/bin/sh"
    """The login shell, which reads every command."""
    umask: int = 0o002
    """Of the server for files."""
    file_limit_bytes: int | None = None
    """No file can become longer: the way to a full disk that needs no root."""
    host_key: Path | None = None
    """A private key to present instead of a new one."""
    login_delay_seconds: float = 0.0
    """How long it takes until a command begins."""


class SshServer:
    """One server. `stop` ends it and every session; `start` starts it again on the same port."""

    def __init__(self, folder: Path, knobs: Knobs | None = None) -> None:
        self.folder = folder
        self.knobs = knobs or Knobs()
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.user = getpass.getuser()
        [self.port] = choose_ports(1)
        self.host_key = self.knobs.host_key or make_key(folder / "host_key")
        self.client_key = make_key(folder / "client_key")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(self.known_line())
        (folder / "authorized_keys").write_bytes(self.client_key.with_suffix(".pub").read_bytes())
        self._process: subprocess.Popen[bytes] | None = None

    def known_line(self, host_key: Path | None = None, port: int | None = None) -> str:
        """The line of a known_hosts file with this server's key, or another's."""
        public = (host_key or self.host_key).with_suffix(".pub").read_text()
        return f"[{HOST}]:{port or self.port} {' '.join(public.split()[:2])}\n"

    def write_config(self, alias: str = "mac", name: str = "ssh_config", /, **settings: object) -> Path:
        """A client's configuration in which `alias` is this server; `settings` are added, or replace (None: drop)."""
        lines: dict[str, object] = {
            "HostName": HOST,
            "Port": self.port,
            "User": self.user,
            "IdentityFile": quoted(self.client_key),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": quoted(self.known_hosts),
            "GlobalKnownHostsFile": "none",
        } | settings
        path = self.folder / name
        text = "".join(f"    {key} {value}\n" for key, value in lines.items() if value is not None)
        path.write_text(f"Host {alias}\n{text}")
        return path

    def start(self) -> SshServer:
        """Start it, and wait until it answers."""
        program = require("sshd")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self._write_server_config()
        log = (self.folder / "sshd.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                restore_signals=False,  # SIGXFSZ stays ignored, so that a limit is an error and not a death
                preexec_fn=self._limit_files if self.knobs.file_limit_bytes else None,
            )
        wait_until(self._answers, f"sshd did not start: {self.log[-2000:]}")
        return self

    def stop(self) -> None:
        """End the server and all sessions."""
        if self._process is None:
            return
        self.end_sessions()
        self._process.terminate()
        self._process.wait(_DEADLINE_SECONDS)
        self._process = None

    def end_sessions(self) -> None:
        """End every session at once; the server itself goes on."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(children, _DEADLINE_SECONDS)

    def limit_files(self, most_bytes: int | None) -> None:
        """From now on no file that open SFTP sessions write can become longer (None: as long as it likes)."""
        import resource

        assert self._process is not None
        soft = resource.RLIM_INFINITY if most_bytes is None else most_bytes
        for child in psutil.Process(self._process.pid).children(recursive=True):
            if child.name() == "sftp-server":
                child.rlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    @property
    def log(self) -> str:
        """What it said so far."""
        return (self.folder / "sshd.log").read_text(errors="replace")

    def __enter__(self) -> SshServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _limit_files(self) -> None:
        import resource

        limit = self.knobs.file_limit_bytes or resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def _write_server_config(self) -> Path:
        sftp_server = next(path for path in _SFTP_SERVERS if Path(path).is_file())
        environment = {"HOME": str(self.home), **self.knobs.environment}
        settings: dict[str, Any] = {
            **self.knobs.settings,
            "Port": self.port,
            "ListenAddress": HOST,
            "HostKey": quoted(self.host_key),
            "AuthorizedKeysFile": quoted(self.folder / "authorized_keys"),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "PrintMotd": "no",
            "UseDNS": "no",
            "Subsystem": f"sftp {sftp_server} -u {self.knobs.umask:04o}",
            "SetEnv": " ".join(f'"{name}={value}"' for name, value in environment.items()),
            "ForceCommand": quoted(self._write_session_script()),
        }
        settings.update(self.knobs.settings)
        path = self.folder / "sshd_config"
        path.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return path

    def _write_session_script(self) -> Path:
        """What stands between the server and each command: the home folder, and the login shell."""
        script = self.folder / "session"
        delay = f"sleep {self.knobs.login_delay_seconds}\n" if self.knobs.login_delay_seconds else ""
        script.write_text(
            f'#!/bin/sh\numask {self.knobs.umask:04o}\ncd "$HOME" || exit 254\n{delay}'
            f'exec {shlex.quote(self.knobs.shell)} -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return script

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log[-2000:]
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new private key at `path`, its public half beside it."""
    program = shutil.which("ssh-keygen")
    assert program is not None
    size = ["-b", "2048"] if kind == "rsa" else []
    command = [program, "-q", "-t", kind, *size, "-N", passphrase, "-C", path.name, "-f", path]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return path


def write_ssh_program(folder: Path, config: Path) -> Path:
    """A folder for the front of PATH, whose ``ssh`` is the system's with `config` as the user's configuration.

    For what takes no such file: ssh looks up the user's own in the account's home folder, whatever ``$HOME`` is.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ssh", "sftp"):
        program = shutil.which(name)
        assert program is not None
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(program)} -F {shlex.quote(str(config))} "$@"\n')
        script.chmod(0o755)
    return folder


def hidden_files(folder: Path) -> list[str]:
    """What is left in `folder` of writes and uploads that did not come to their end."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def quoted(path: Path) -> str:
    """`path` as ssh's configuration files want it."""
    return f'"{path}"'


def wait_until(condition: Callable[[], bool], message: str, seconds: float = _DEADLINE_SECONDS) -> None:
    """Look again and again until `condition` holds; fail with `message` when it never does."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, message
        pause.wait(0.02)


__all__ = ["HOST", "Knobs", "SshServer", "hidden_files", "make_key", "quoted", "wait_until", "write_ssh_program"]
