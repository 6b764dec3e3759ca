"""known_hosts files as OpenSSH reads them: hashed names, patterns, ports, revoked keys; bad lines are passed over."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Marker = Literal["", "@cert-authority", "@revoked"]
Standing = Literal["known", "unknown", "changed", "revoked"]

DEFAULT_PORT = 22


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One line: the hosts it is about, as written, and their key."""

    marker: Marker
    patterns: tuple[str, ...]
    key_type: str
    key: bytes

    def is_about(self, name: str) -> bool:
        """Whether `name`, such as ``host`` or ``[host]:2222``, is meant: some pattern fits and no ``!`` one does."""
        fits = [(pattern, _fits(pattern.removeprefix("!"), name.lower())) for pattern in self.patterns]
        return any(fit for _, fit in fits) and not any(fit for pattern, fit in fits if pattern.startswith("!"))


def read_known_hosts(paths: Iterable[Path]) -> tuple[KnownHost, ...]:
    """The lines of all `paths`, in order; a file that cannot be read has none, as for ssh."""
    lines: list[KnownHost] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        lines += parse_known_hosts(text)
    return tuple(lines)


def parse_known_hosts(text: str) -> tuple[KnownHost, ...]:
    """The lines of a file that are well formed."""
    return tuple(line for raw in text.splitlines() if (line := _parse_line(raw)))


def names_of(hostname: str, port: int, alias: str | None) -> tuple[str, ...]:
    """The names under which a key may be filed, the right one first."""
    if alias:
        return (alias,)
    return (hostname,) if port == DEFAULT_PORT else (f"[{hostname}]:{port}", hostname)


def judge(lines: Sequence[KnownHost], names: Sequence[str], key_type: str, key: bytes) -> Standing:
    """What the files say about a host that goes by `names` and presents `key`."""
    about = [[line for line in lines if line.is_about(name)] for name in names]
    if any(line.marker == "@revoked" and line.key == key for found in about for line in found):
        return "revoked"
    plain = [[line for line in found if not line.marker] for found in about]
    if any(line.key == key for found in plain for line in found):
        return "known"
    # A key of the same host without its port accepts, but does not contradict.
    return "changed" if any(line.key_type == key_type for line in plain[0]) else "unknown"


def known_key_types(lines: Sequence[KnownHost], names: Sequence[str]) -> tuple[str, ...]:
    """The types of the host's keys that are on file: those to ask the host for."""
    found = (line.key_type for name in names for line in lines if not line.marker and line.is_about(name))
    return tuple(dict.fromkeys(found))


def fingerprint(key: bytes) -> str:
    """The SHA-256 fingerprint of a public key, as ssh prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def accept_command(name: str, standing: str, key_type: str, file: Path) -> str:
    """What to type to accept the key that `name` presents now; the old one is removed first if it changed."""
    match = re.fullmatch(r"\[(.+)\]:(\d+)", name)
    host, port = match.groups() if match else (name, str(DEFAULT_PORT))
    where = shlex.quote(str(file))
    scan = f"ssh-keyscan -t {shlex.quote(key_type)} -p {port} {shlex.quote(host)} >> {where}"
    return f"{forget_command(name, file)} && {scan}" if standing in ("changed", "revoked") else scan


def forget_command(name: str, file: Path) -> str:
    """What to type to remove every key of `name`."""
    return f"ssh-keygen -R {shlex.quote(name)} -f {shlex.quote(str(file))}"


def _parse_line(raw: str) -> KnownHost | None:
    fields = raw.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker: Marker = ""
    if fields[0] == "@cert-authority" or fields[0] == "@revoked":
        marker = "@cert-authority" if fields[0] == "@cert-authority" else "@revoked"
        fields = fields[1:]
    if len(fields) < 3 or fields[0].startswith("@"):
        return None
    try:
        key = base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):  # ValueError: not even ASCII
        return None
    return KnownHost(marker, tuple(fields[0].split(",")), fields[1], key)


def _fits(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        return _fits_hash(pattern, name)
    expression = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern.lower())
    return re.fullmatch(expression, name) is not None


def _fits_hash(pattern: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in pattern.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), hashlib.sha1), digest)


__all__ = [
    "DEFAULT_PORT",
    "KnownHost",
    "Marker",
    "Standing",
    "accept_command",
    "fingerprint",
    "forget_command",
    "judge",
    "known_key_types",
    "names_of",
    "parse_known_hosts",
    "read_known_hosts",
]
