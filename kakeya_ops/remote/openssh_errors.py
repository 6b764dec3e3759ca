"""What the system's ssh says when it does not connect, as a `RemoteError`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from kakeya_ops.errors import AuthenticationFailed, ConnectFailed, HostKeyRejected, RemoteError
from kakeya_ops.remote.file_runner import printable_tail
from kakeya_ops.remote.known_hosts import accept_command
from kakeya_ops.remote.ssh_config import ResolvedSsh

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_PRESENTED = re.compile(r"Server host key: (\S+) (SHA256:\S+)")
_UNKNOWN = re.compile(r"No (\S+) host key is known for (\S+) and")
_CHANGED = re.compile(r"Host key for (\S+) has changed")
_REVOKED = re.compile(r"Host key (\S+) was revoked|REVOKED HOST KEY DETECTED|marked as revoked|[Rr]evoked")
_KIND = re.compile(r"The fingerprint for the (\S+) key")
_REFUSED = re.compile(r"Permission denied \(|Too many authentication failures|Permission denied, please")
_BUSY = re.compile(r"kex_exchange_identification|Connection (reset|closed) by|banner exchange")


@dataclass(frozen=True, slots=True)
class HostKeyComplaint:
    """That ssh refused a host key: whose, and why."""

    standing: str
    known_name: str
    key_type: str
    fingerprint: str


def find_complaint(said: str, resolved: ResolvedSsh) -> HostKeyComplaint | None:
    """The refusal of a host key in what ssh said, if that was it. The fingerprint may be missing (empty)."""
    presented = _PRESENTED.findall(said)
    prints = [presented[-1][1]] if presented else _FINGERPRINT.findall(said)
    shown = prints[-1] if prints else ""
    kind = presented[-1][0] if presented else ""
    own_name = resolved.known_names[0]
    if match := _CHANGED.search(said):
        named = _KIND.search(said)
        return HostKeyComplaint("changed", match[1], kind or (named[1].lower() if named else ""), shown)
    if match := _UNKNOWN.search(said):
        return HostKeyComplaint("unknown", match[2], kind or match[1].lower(), shown)
    if "Host key verification failed" in said:
        return HostKeyComplaint("revoked" if _REVOKED.search(said) else "unknown", own_name, kind, shown)
    return None


def host_key_error(name: str, resolved: ResolvedSsh, complaint: HostKeyComplaint) -> HostKeyRejected:
    """The error for `complaint`, with the command that accepts the key."""
    shown = f"{complaint.key_type} {complaint.fingerprint}".strip() or "ssh did not show it"
    whose = "" if complaint.known_name == resolved.known_names[0] else f" (it is {complaint.known_name}'s)"
    command = _accept(resolved, complaint)
    hint = f"only if that is the host's key{whose}, accept it: {command}"
    return HostKeyRejected(name, complaint.standing, shown, hint=hint)


def connect_error(name: str, resolved: ResolvedSsh, said: str) -> RemoteError:
    """The error for any other reason why ssh did not connect."""
    lines = printable_tail(said.encode()).splitlines()
    reason = next((line for line in reversed(lines) if line.strip()), "ssh ended without a word")
    if _REFUSED.search(said):
        tried = tuple(str(path) for path in resolved.identity_files if path.is_file())
        return AuthenticationFailed(name, resolved.user, tried, hint=f"try: {_by_hand(resolved)}")
    return ConnectFailed(name, reason, transient=bool(_BUSY.search(said)), hint=f"try: {_by_hand(resolved)}")


def _accept(resolved: ResolvedSsh, complaint: HostKeyComplaint) -> str:
    file = next(iter(resolved.known_hosts_files), Path("~/.ssh/known_hosts"))
    proxied = any(resolved.first(name, "none") != "none" for name in ("proxyjump", "proxycommand", "hostkeyalias"))
    if not proxied or complaint.known_name not in resolved.known_names:
        return accept_command(complaint.known_name, complaint.standing, complaint.key_type.removeprefix("ssh-"), file)
    forget = f"ssh-keygen -R {shlex.quote(complaint.known_name)} -f {shlex.quote(str(file))} && "
    ask = _by_hand(resolved, "-o", "StrictHostKeyChecking=ask")
    return ask if complaint.standing == "unknown" else forget + ask


def _by_hand(resolved: ResolvedSsh, *options: str) -> str:
    return shlex.join(["ssh", *resolved.target.options(), *options, resolved.target.host, "true"])


__all__ = ["HostKeyComplaint", "connect_error", "find_complaint", "host_key_error"]
