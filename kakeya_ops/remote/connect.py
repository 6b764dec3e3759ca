"""Chooses how a host is reached, and connects."""

from __future__ import annotations

import getpass
import random
import socket
import time
from pathlib import Path

from kakeya_ops.errors import AuthenticationFailed, ConnectFailed
from kakeya_ops.inventory.models import ResolvedHost
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_limits import beyond_paramiko, may_need_ssh
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.runner import Runner
from kakeya_ops.remote.ssh_config import ResolvedSsh, SshTarget, resolve

_RETRY_AFTER_SECONDS = (0.3, 1.0, 2.0)


def connect(host: ResolvedHost, *, config_file: Path | None = None) -> Runner:
    """Connect to `host` as the user's ssh configuration says, or as `config_file` does.

    The machine itself, for the same user, needs no connection. Otherwise paramiko connects where it can do all that
    the configuration asks for, and the system's ssh where it cannot; `Runner.notes` tell which setting decided.
    Raises `InputError` for a configuration that cannot be followed, `ConnectFailed`, `HostKeyRejected`,
    `AuthenticationFailed`.
    """
    resolved = resolve(SshTarget(host.ssh_host, host.ssh.user, host.ssh.port, config_file))
    if is_this_machine(resolved):
        return LocalRunner(host.name, ("this machine itself: no ssh",))
    return _open(host.name, resolved)


def is_this_machine(ssh: ResolvedSsh) -> bool:
    """Whether `ssh` would lead back to here, to the same user. Loopback addresses do not count: they may be tunnels."""
    direct = ssh.port == 22 and not {"ProxyJump", "ProxyCommand"} & set(beyond_paramiko(ssh))
    own = socket.gethostname().lower().removesuffix(".local")
    named = ssh.hostname.lower().removesuffix(".local")
    return direct and named == own and named != "localhost" and ssh.user == getpass.getuser()


def _open(name: str, ssh: ResolvedSsh) -> Runner:
    reasons = beyond_paramiko(ssh)
    if reasons:
        return _open_with_ssh(name, ssh, reasons)
    try:
        return _persistently(ParamikoRunner(name, ssh, OpenSshRunner(name, ssh) if ssh.program else None))
    except AuthenticationFailed:
        if not (ssh.program and may_need_ssh(ssh)):
            raise
        return _open_with_ssh(name, ssh, may_need_ssh(ssh))


def _open_with_ssh(name: str, ssh: ResolvedSsh, reasons: tuple[str, ...]) -> Runner:
    asked = ", ".join(reasons)
    if ssh.program is None:
        raise ConnectFailed(
            name, f"its ssh configuration needs the ssh program, which is not here: {asked}", hint="install OpenSSH"
        )
    return _persistently(OpenSshRunner(name, ssh, (*ssh.notes, f"by the system's ssh, which can do: {asked}")))


def _persistently(runner: ParamikoRunner | OpenSshRunner) -> Runner:
    """Open `runner`, again if the server was only busy with others that log in."""
    for pause_seconds in _RETRY_AFTER_SECONDS:
        try:
            runner.open()
            return runner
        except ConnectFailed as error:
            if not error.transient:
                raise
            time.sleep(pause_seconds * random.uniform(0.5, 1.5))
    runner.open()
    return runner


__all__ = ["connect", "is_this_machine"]
