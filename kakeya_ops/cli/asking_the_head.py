"""What all commands that ask the running head have in common: where it is, and the keys that it knows them by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.errors import InputError
from kakeya_ops.secret import Secret, read_fleet_keys
from kakeya_ops.settings import expand_here

if TYPE_CHECKING:
    from kakeya_ops.certificates import Certificates
    from kakeya_ops.inventory import Inventory

UrlOption = Annotated[
    str | None, typer.Option(help="The head's API; default: that of the inventory's head.", metavar="URL")
]
"""``--url``, for `head_url`."""
ApiKeyFileOption = Annotated[
    Path | None, typer.Option(help="File that holds an API key, where the head asks for one.", metavar="FILE")
]
"""``--api-key-file``, for `read_api_key`."""


def head_url(inventory: Inventory, stated: str | None = None) -> str:
    """`stated`, or where the first head of `inventory` serves its API: its bind address, or where peers reach it if it
    binds to all.
    """
    if stated:
        return stated
    from kakeya_ops.inventory.fields import is_unspecified

    head, api = next((host, host.api) for host in inventory.with_role("head") if host.api)
    elsewhere = head.endpoints[0].address if head.endpoints else head.ssh_host
    address = elsewhere if is_unspecified(api.bind) else api.bind
    return f"http://{f'[{address}]' if ':' in address else address}:{api.port}"


def fleet_keys(inventory: Inventory) -> tuple[Secret, ...]:
    """The fleet's keys on this machine, two while they are being rotated.

    Raises `InputError` if there is none.
    """
    if inventory.fleet.key_file is None:
        raise InputError(
            "the fleet is unsigned, so nothing that it says can be proved",
            hint="name a key file in fleet.key_file of the inventory",
        )
    return read_fleet_keys(expand_here(inventory.fleet.key_file))


def certificates_for(inventory: Inventory, caller: str) -> Certificates | None:
    """Those that `caller` calls nodes with from here, where any of them speaks TLS.

    Raises `InputError` for what cannot be used.
    """
    from kakeya_ops.certificates.material import certificates_here

    key_file = inventory.fleet.key_file
    return certificates_here(expand_here(key_file), caller) if key_file and inventory.needs_tls else None


def read_api_key(path: Path | None) -> Secret | None:
    """The API key in `path`, if one is named. Raises `InputError` if it cannot be read or is no key."""
    if path is None:
        return None
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"API key file {path} cannot be read: {error}") from error
    if not key.isprintable() or " " in key or not key:
        raise InputError(f"API key file {path} must hold one key and nothing else")
    return Secret(key.encode())


__all__ = ["ApiKeyFileOption", "UrlOption", "certificates_for", "fleet_keys", "head_url", "read_api_key"]
