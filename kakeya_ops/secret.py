"""The fleet key: read from a file, never printed, used only to derive keys for one purpose each."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from kakeya_ops.errors import EnvironmentFault, InputError

_KEY_BYTES = 32
_MOST_BYTES = 65536
"""Of a file of keys: hundreds of them."""


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
    keys = read_keys(path)
    if len(keys) != 1:
        raise InputError(f"fleet key {path} holds {len(keys)} keys instead of one")
    return keys[0]


def read_fleet_keys(path: Path) -> tuple[Secret, ...]:
    """Every key that a node accepts, and first the one it signs with, which is that of `read_fleet_key`.

    While the fleet's key is being replaced, the file at `also_accepted` holds more. Raises as `read_fleet_key` does.
    """
    first, also = read_fleet_key(path), also_accepted(path)
    return tuple(dict.fromkeys((first, *(read_keys(also) if also.exists() else ()))))


def also_accepted(path: Path) -> Path:
    """The file beside the fleet key at `path` with the keys that are accepted besides it."""
    return Path(f"{path}.also")


def read_keys(path: Path) -> tuple[Secret, ...]:
    """The keys in `path`, one a line; otherwise as `read_fleet_key`."""
    mode, text = _read(path)
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"fleet key {path} is open to other users", hint=f"chmod 600 {path}")
    try:
        values = [bytes.fromhex(line.decode("ascii")) for line in text.split()]
    except ValueError:  # whose own words would quote the key
        raise InputError(f"fleet key {path} is not written in hexadecimal digits, two a byte") from None
    for value in values:
        if len(value) != _KEY_BYTES:
            raise InputError(f"fleet key {path} holds {len(value)} bytes instead of {_KEY_BYTES}")
    return tuple(map(Secret, values))


def _read(path: Path) -> tuple[int, bytes]:
    """The mode and contents of a key file. What is no regular file is not read: it might never end."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"fleet key {path} is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise InputError(f"fleet key {path} is far longer than a key: {status.st_size} bytes")
        return status.st_mode, path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"fleet key {path} does not exist", hint="make one with: kakeya key new") from None
    except OSError as error:
        raise InputError(f"fleet key {path} cannot be read: {error.strerror}") from error


def new_fleet_key() -> Secret:
    """A fresh random key."""
    return Secret(secrets.token_bytes(_KEY_BYTES))


def key_lines(*keys: Secret) -> bytes:
    """What a file with `keys` holds."""
    return b"".join(key.reveal().hex().encode() + b"\n" for key in keys)


def write_fleet_key(path: Path) -> Secret:
    """Make a new fleet key at `path` with mode 0600, whole or not at all. Never replaces a file.

    Raises `EnvironmentFault` if the file exists or cannot be written.
    """
    key = new_fleet_key()
    try:
        write_new_secret(path, key_lines(key))
    except FileExistsError:
        raise EnvironmentFault(f"fleet key {path} exists, and a key is never replaced by itself") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot write fleet key {path}: {error.strerror}") from error
    return key


def write_new_secret(path: Path, data: bytes) -> None:
    """Write to a file beside `path`, readable by its owner alone, and give it the name if nothing has it yet.

    Folders above it are made. Raises `OSError`: `FileExistsError` if the name is taken.
    """
    _write_beside(path, data, os.link)


def replace_secret(path: Path, data: bytes) -> None:
    """As `write_new_secret`, whoever has the name."""
    _write_beside(path, data, os.replace)


def _write_beside(path: Path, data: bytes, give_name: Callable[[str, Path], None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        give_name(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


__all__ = [
    "Secret",
    "also_accepted",
    "key_lines",
    "new_fleet_key",
    "read_fleet_key",
    "read_fleet_keys",
    "read_keys",
    "replace_secret",
    "write_fleet_key",
    "write_new_secret",
]
