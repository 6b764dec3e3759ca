"""API keys: who may use the head, and as which tenant."""

from __future__ import annotations

import hmac
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kakeya_ops.errors import InputError
from kakeya_ops.secret import Secret

_SHORTEST_KEY = 16
_LONGEST_TENANT = 200
"""With what the head adds to it, it has to fit into a name on the wire."""


class ApiKeys:
    """Keys with the tenant of each. Looking one up takes as long for a wrong key as for a right one."""

    def __init__(self, tenants: Mapping[str, str]) -> None:
        """`tenants` maps each key's text to its tenant."""
        self._keys = tuple((Secret(key.encode()), tenant) for key, tenant in tenants.items())

    def tenant_of(self, authorization: str | None) -> str | None:
        """The tenant of an ``Authorization: Bearer …`` header's value; None if it is missing or no key of ours."""
        scheme, _, given = (authorization or "").partition(" ")
        offered = given.strip().encode() if scheme.lower() == "bearer" else b""
        found = None
        for key, tenant in self._keys:
            if hmac.compare_digest(key.reveal(), offered):
                found = tenant
        return found

    def __len__(self) -> int:
        return len(self._keys)


def read_api_keys(path: Path) -> ApiKeys:
    """The keys in the YAML file at `path`, ``key: tenant`` a line, readable by its owner alone.

    Raises `InputError` if the file is missing, open to others, empty, not of that form, or holds a key of fewer than
    16 characters or a tenant that is no printable text of at most 200.
    """
    try:
        mode = path.stat().st_mode
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"API keys file {path} does not exist") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        # A YAML error quotes the line, and with it a key.
        raise InputError(f"API keys file {path} cannot be read: {type(error).__name__}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"API keys file {path} is open to other users", hint=f"chmod 600 {path}")
    return ApiKeys(_check(path, content))


def _check(path: Path, content: Any) -> dict[str, str]:
    if not isinstance(content, dict) or not content:
        raise InputError(f"API keys file {path} holds no keys", hint="write one line for each: <key>: <tenant>")
    for key, tenant in content.items():
        if not isinstance(key, str) or not isinstance(tenant, str) or not tenant:
            raise InputError(f"API keys file {path} has an entry that is not text", hint="quote the key")
        # A head tells spaces of one tenant apart by what follows a control character, see `Quarantine.space`.
        if len(tenant) > _LONGEST_TENANT or not tenant.isprintable():
            raise InputError(f"API keys file {path} has a tenant that is not up to {_LONGEST_TENANT} printable letters")
        if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise InputError(
                f"API keys file {path} has a key of {tenant} that is shorter than {_SHORTEST_KEY} characters "
                "or not printable ASCII without spaces",
                hint='make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"',
            )
    return content


__all__ = ["ApiKeys", "read_api_keys"]
