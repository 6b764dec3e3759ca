"""An authenticated connection by paramiko: strict host keys, and keys offered in ssh's order."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm

from kakeya_ops.errors import AuthenticationFailed, ConnectFailed, HostKeyRejected
from kakeya_ops.remote.known_hosts import accept_command, fingerprint, judge, known_key_types, read_known_hosts
from kakeya_ops.remote.paramiko_limits import ALGORITHMS, usable_algorithms
from kakeya_ops.remote.ssh_config import ResolvedSsh

_KEEPALIVE_SECONDS = 15
_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")

# Its errors reach the user as ours; without a handler of its own it would print them as well.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def open_transport(name: str, ssh: ResolvedSsh) -> paramiko.Transport:
    """Connect to the host called `name` as `ssh` says.

    Raises `ConnectFailed`, `HostKeyRejected`, `AuthenticationFailed`.
    """
    transport = _negotiate(name, ssh)
    try:
        _check_host_key(name, ssh, transport)
        _authenticate(name, ssh, transport)
    except BaseException:
        transport.close()
        raise
    transport.set_keepalive(_KEEPALIVE_SECONDS)
    return transport


def _negotiate(name: str, ssh: ResolvedSsh) -> paramiko.Transport:
    seconds = ssh.connect_timeout_seconds
    try:
        connection = socket.create_connection((ssh.hostname, ssh.port), timeout=seconds)
        # A command is several small messages in a row; held back until the one before is confirmed, each costs 40 ms.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        where = f"{ssh.hostname} port {ssh.port}"
        busy = isinstance(error, ConnectionResetError)
        raise ConnectFailed(name, f"{where}: {error.strerror or error}", transient=busy) from error
    transport = paramiko.Transport(connection)
    transport.banner_timeout = transport.auth_timeout = seconds
    try:
        _choose_algorithms(ssh, transport)
        transport.start_client(timeout=seconds)
    except paramiko.IncompatiblePeer as error:
        transport.close()
        raise ConnectFailed(name, f"no algorithm in common: {error}") from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        transport.close()
        # A server with too many that have not logged in yet closes the connection without a word.
        raise ConnectFailed(name, f"the ssh server broke off: {error}", transient=True) from error
    if not transport.initial_kex_done:
        transport.close()
        raise ConnectFailed(name, f"the ssh server did not answer within {seconds:g} s", transient=True)
    return transport


def _choose_algorithms(ssh: ResolvedSsh, transport: paramiko.Transport) -> None:
    """Only what the configuration allows; of host keys, those types first that are on file."""
    options = transport.get_security_options()
    for setting, (attribute, _) in ALGORITHMS.items():
        setattr(options, attribute, usable_algorithms(ssh, setting))
    on_file = known_key_types(read_known_hosts(ssh.known_hosts_files), ssh.known_names)
    wanted = [kind for known in on_file for kind in (_RSA_SIGNATURES if known == "ssh-rsa" else (known,))]
    able = options.key_types
    options.key_types = (*(kind for kind in wanted if kind in able), *(kind for kind in able if kind not in wanted))


def _check_host_key(name: str, ssh: ResolvedSsh, transport: paramiko.Transport) -> None:
    presented = transport.get_remote_server_key()
    key, key_type = presented.asbytes(), presented.get_name()
    standing = judge(read_known_hosts(ssh.known_hosts_files), ssh.known_names, key_type, key)
    if standing != "known":
        file = next(iter(ssh.known_hosts_files), Path("~/.ssh/known_hosts"))
        command = accept_command(ssh.known_names[0], standing, key_type, file)
        raise HostKeyRejected(
            name,
            standing,
            f"{key_type} {fingerprint(key)}",
            hint=f"only if that is this host's key, accept it: {command}",
        )


@dataclass
class _Offer:
    label: str
    key: Any


@dataclass
class _Offers:
    """The keys to offer, in ssh's order; afterwards, which files were locked."""

    ssh: ResolvedSsh
    locked: list[Path] = field(default_factory=list)

    def __iter__(self) -> Iterator[_Offer]:
        named = {blob: path for path in self.ssh.identity_files if (blob := _public_blob(path))}
        with _agent(self.ssh) as held:
            usable = [key for key in held if not key.get_name().startswith("sk-") and "-cert-" not in key.get_name()]
            first = [key for key in usable if key.asbytes() in named]
            others = [] if self.ssh.identities_only else [key for key in usable if key.asbytes() not in named]
            for key in (*first, *others):
                where = named.get(key.asbytes(), key.comment or key.get_name())
                yield _Offer(f"{where} (agent)", key)
            blobs = {key.asbytes() for key in first}
            for path in self.ssh.identity_files:
                if (key := self._load(path)) is not None and key.asbytes() not in blobs:
                    yield _Offer(str(path), key)

    def _load(self, path: Path) -> Any | None:
        try:
            return paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):
            self.locked.append(path)
        except (OSError, ValueError, paramiko.SSHException, UnsupportedAlgorithm):
            pass
        return None


@contextlib.contextmanager
def _agent(ssh: ResolvedSsh) -> Iterator[tuple[Any, ...]]:
    if ssh.first("identityagent") == "none":
        yield ()
        return
    try:
        agent = paramiko.Agent()
    except (paramiko.SSHException, OSError):
        yield ()
        return
    try:
        yield agent.get_keys()
    finally:
        agent.close()


def _public_blob(path: Path) -> bytes | None:
    """The public half of an identity file, which may itself be one whose private half only the agent has."""
    for candidate in (path.with_name(f"{path.name}.pub"), path):
        with contextlib.suppress(OSError, UnicodeDecodeError, ValueError, paramiko.SSHException):
            blob = paramiko.PublicBlob.from_string(candidate.read_text().strip())
            return bytes(blob.key_blob)
    return None


def _authenticate(name: str, ssh: ResolvedSsh, transport: paramiko.Transport) -> None:
    tried: list[str] = []
    offers = _Offers(ssh)
    for offer in offers:
        tried.append(offer.label)
        try:
            if not transport.auth_publickey(ssh.user, offer.key):
                return
        except paramiko.BadAuthenticationType:
            break
        except (paramiko.SSHException, EOFError, OSError):
            if not transport.is_active():
                break
    raise AuthenticationFailed(name, ssh.user, tuple(tried), hint=_authentication_hint(offers, tried, transport))


def _authentication_hint(offers: _Offers, tried: list[str], transport: paramiko.Transport) -> str:
    if offers.locked:
        return f"unlock the key first: ssh-add {offers.locked[0]}"
    if len(tried) > 1 and not transport.is_active():
        return "too many keys were offered: name the right one with IdentityFile, and set IdentitiesOnly yes"
    return f"add a key there: ssh-copy-id {offers.ssh.target.host}"


__all__ = ["open_transport"]
