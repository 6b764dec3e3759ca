"""What the user's own ssh configuration says about a host: asked from ssh itself, or read as well as paramiko can."""

from __future__ import annotations

import getpass
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko

from kakeya_ops.errors import InputError
from kakeya_ops.remote.known_hosts import DEFAULT_PORT, names_of
from kakeya_ops.remote.process import run_process
from kakeya_ops.settings import expand_here

_TIMEOUT_SECONDS = 15.0
_CONNECT_TIMEOUT_SECONDS = 10.0
_HOST = re.compile(r"[^\s\x00-\x20\x7f'\"`$\\;&<>|(){}@/,-][^\s\x00-\x20\x7f'\"`$\\;&<>|(){}@/,]*")
_USER = re.compile(r"[^\s\x00-\x20\x7f'\"`$\\;&<>|(){}:@/-][^\s\x00-\x20\x7f'\"`$\\;&<>|(){}:/]*")
_DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_DEFAULT_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"

Settings = Mapping[str, tuple[str, ...]]
"""The values of each setting, by its name in lower case; more than one where it may be repeated."""


@dataclass(frozen=True, slots=True)
class SshTarget:
    """What ssh is asked for: a host or alias, and what is not left to the configuration.

    Raises `InputError` if host or user could mean anything but a name to ssh or to a shell.
    """

    host: str
    user: str | None = None
    port: int | None = None
    config_file: Path | None = None
    """Instead of the user's own."""

    def __post_init__(self) -> None:
        _refuse_unless(_HOST, "host", self.host, "write the user and the port as ssh.user and ssh.port")
        if self.user is not None:
            _refuse_unless(_USER, "user", self.user, None)

    def options(self) -> tuple[str, ...]:
        """The options of ssh that say the same, but for the host."""
        config = ("-F", str(self.config_file)) if self.config_file else ()
        user = ("-l", self.user) if self.user else ()
        return (*config, *user, *(("-p", str(self.port)) if self.port else ()))


@dataclass(frozen=True, slots=True)
class ResolvedSsh:
    """Where and as whom to connect, and all that the configuration says beyond that."""

    target: SshTarget
    settings: Settings
    program: str | None
    """The system's ssh, if there is one."""
    notes: tuple[str, ...] = ()

    def first(self, setting: str, default: str = "") -> str:
        """The value of a setting that has only one."""
        return next(iter(self.settings.get(setting, ())), default)

    @property
    def hostname(self) -> str:
        """The name or address to connect to."""
        return self.first("hostname", self.target.host)

    @property
    def port(self) -> int:
        """The port to connect to."""
        return int(self.first("port", str(DEFAULT_PORT)))

    @property
    def user(self) -> str:
        """The login name."""
        return self.first("user") or getpass.getuser()

    @property
    def known_names(self) -> tuple[str, ...]:
        """Under which names its host key is on file."""
        alias = self.first("hostkeyalias", "none")
        return names_of(self.hostname, self.port, None if alias == "none" else alias)

    @property
    def known_hosts_files(self) -> tuple[Path, ...]:
        """Where host keys are on file; the first is the user's own."""
        values = (self.first("userknownhostsfile"), self.first("globalknownhostsfile"))
        return tuple(expand_here(name) for value in values for name in _split(value) if name != "none")

    @property
    def identity_files(self) -> tuple[Path, ...]:
        """Private keys to offer; they need not exist."""
        return tuple(expand_here(name) for name in self.settings.get("identityfile", ()) if name != "none")

    @property
    def identities_only(self) -> bool:
        """Whether keys of the agent that are no identity file are not to be offered."""
        return self.first("identitiesonly") == "yes"

    @property
    def connect_timeout_seconds(self) -> float:
        """How long a connection may take."""
        value = self.first("connecttimeout", "none")
        return float(value) if value.isdigit() and value != "0" else _CONNECT_TIMEOUT_SECONDS


def resolve(target: SshTarget) -> ResolvedSsh:
    """What ssh would do for `target`. Raises `InputError` if ssh cannot read its configuration."""
    program = shutil.which("ssh")
    return _ask_ssh(program, target) if program else _read_with_paramiko(target)


def parse_settings(text: str) -> Settings:
    """The output of ``ssh -G``: a setting in lower case and its value on each line."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name:
            found[name.lower()] = (*found.get(name.lower(), ()), value.strip())
    return found


def _ask_ssh(program: str, target: SshTarget) -> ResolvedSsh:
    argv = [program, *target.options(), "-G", "--", target.host]
    try:
        done = run_process(argv, timeout_seconds=_TIMEOUT_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"{program} cannot be started: {error}") from error
    if done.ending != "exit":
        raise InputError(f"ssh took too long to read its configuration for {target.host}", hint="is a Match exec slow?")
    if done.status != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise InputError(f"ssh cannot read its configuration for {target.host}: {said}")
    return ResolvedSsh(target, parse_settings(done.stdout.decode(errors="replace")), program)


def _read_with_paramiko(target: SshTarget) -> ResolvedSsh:
    path = target.config_file or expand_here("~/.ssh/config")
    notes = ["no ssh program here: connecting with paramiko alone"]
    settings: dict[str, tuple[str, ...]] = {}
    if path.is_file():
        text = path.read_text(errors="replace")
        if unread := _beyond_the_parser(text):
            notes.append(f"{path} may be misread without the ssh program: {', '.join(unread)}")
        settings = _parse_with_paramiko(text, target)
    defaults = {
        "identityfile": _DEFAULT_IDENTITIES,
        "userknownhostsfile": (_DEFAULT_KNOWN_HOSTS,),
        "globalknownhostsfile": (_GLOBAL_KNOWN_HOSTS,),
    }
    given = {"user": target.user, "port": str(target.port) if target.port else None}
    overrides = {name: (value,) for name, value in given.items() if value}
    return ResolvedSsh(target, defaults | settings | overrides, None, tuple(notes))


def _parse_with_paramiko(text: str, target: SshTarget) -> dict[str, tuple[str, ...]]:
    try:
        found = paramiko.SSHConfig.from_text(text).lookup(target.host)
    except paramiko.ConfigParseError as error:
        raise InputError(f"the ssh configuration cannot be read: {error}") from error
    return {name: tuple(value) if isinstance(value, list) else (str(value),) for name, value in found.items()}


def _beyond_the_parser(text: str) -> tuple[str, ...]:
    """The keywords that paramiko's parser passes over or understands otherwise than ssh."""
    words = {line.split(None, 1)[0].rstrip("=").lower() for line in text.splitlines() if line.strip()}
    return tuple(word for word in ("Include", "Match") if word.lower() in words)


def _refuse_unless(pattern: re.Pattern[str], what: str, value: str, hint: str | None) -> None:
    if not pattern.fullmatch(value):
        raise InputError(f"ssh {what} {value[:80]!r} has characters that no {what} has", hint=hint)


def _split(value: str) -> Iterable[str]:
    """The names in a setting that holds several; ssh -G leaves quotes away, a configuration file may have them."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


__all__ = ["ResolvedSsh", "Settings", "SshTarget", "parse_settings", "resolve"]
