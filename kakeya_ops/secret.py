"""The fleet key: read from a file, never printed, used only to derive keys for one purpose each."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from kakeya_ops.errors import EnvironmentFault, InputError

_KEY_BYTES = 32


class Secret:
    """Bytes that never show themselves in a log, a traceback or a repr."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def reveal(self) -> bytes:
        """The bytes themselves; call it only where they are used."""
        return self._value

    def derive(self, purpose: str) -> Secret:
        """A 32-byte key for one purpose: HMAC-SHA-256 of `purpose` under this key."""
        return Secret(hmac.digest(self._value, b"kakeya:" + purpose.encode(), hashlib.sha256))

    def __repr__(self) -> str:
        return "Secret(redacted)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(hashlib.sha256(self._value).digest())


def read_fleet_key(path: Path) -> Secret:
    """The fleet key in `path`: 64 hexadecimal digits, readable by its owner alone.

    Raises `InputError` if the file is missing, is not a key, or is open to others.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii").strip()
        value = bytes.fromhex(text)
    except FileNotFoundError:
        raise InputError(f"fleet key {path} does not exist", hint="make one with: kakeya init") from None
    except (OSError, ValueError) as error:
        raise InputError(f"fleet key {path} cannot be read: {error}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"fleet key {path} is open to other users", hint=f"chmod 600 {path}")
    if len(value) != _KEY_BYTES:
        raise InputError(f"fleet key {path} holds {len(value)} bytes instead of {_KEY_BYTES}")
    return Secret(value)


def write_fleet_key(path: Path) -> Secret:
    """Make a new fleet key at `path` with mode 0600. Never replaces a file.

    Raises `EnvironmentFault` if the file exists or cannot be written.
    """
    value = secrets.token_bytes(_KEY_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(value.hex() + "\n")
    except OSError as error:
        raise EnvironmentFault(f"cannot write fleet key {path}: {error.strerror}") from error
    return Secret(value)


__all__ = ["Secret", "read_fleet_key", "write_fleet_key"]
