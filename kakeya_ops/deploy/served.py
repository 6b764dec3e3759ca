"""The inventory's copy that a host is served from: everything that its server reads, and nothing else.

What only deploy reads (how to log in, where to install) is left out, so that changing it for one host changes no
other. The service's arguments name this copy; it is what carries every value to the server.
"""

from __future__ import annotations

from typing import Any

import yaml

from kakeya_ops.errors import InputError
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory

LEFT_OUT = {
    "ssh": "how deploy logs in",
    "install_root": "where deploy installs",
    "python": "which interpreter deploy makes the venv with",
    "domain": "a key of launchd, in the property list",
    "prevent_sleep": "caffeinate, in the property list",
    "environment": "environment variables, in the property list",
}
"""Keys of a host that no server reads, and what they are for."""
PEERS = frozenset({"role", "endpoints", "api"})
"""What a server reads of the other hosts: `api` only because a head without one is no head."""
SECTIONS = ("fleet", "model", "cache", "prefill", "model_serving", "memory")


def served_inventory(inventory: Inventory, host: ResolvedHost) -> bytes:
    """The copy for `host`, as YAML; the same bytes for the same values."""
    document: dict[str, Any] = {name: getattr(inventory, name).model_dump(mode="json") for name in SECTIONS}
    document["hosts"] = {name: _host(inventory.host(name), name == host.name) for name in inventory.hosts}
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    return f"# Written by kakeya deploy for {host.name}: changes made here are lost.\n{text}".encode()


def read_served_host(data: bytes | None, name: str) -> ResolvedHost | None:
    """The host as the copy in `data` describes it: where the service that is served from it listens.

    None for no copy, or one that cannot be read.
    """
    try:
        return None if data is None else parse_inventory(data, "inventory.yaml").host(name)
    except InputError:
        return None


def _host(host: ResolvedHost, whole: bool) -> dict[str, Any]:
    values = host.model_dump(mode="json", exclude={"name", *LEFT_OUT})
    kept = values if whole else {key: value for key, value in values.items() if key in PEERS}
    return {key: value for key, value in kept.items() if value is not None}


__all__ = ["LEFT_OUT", "PEERS", "SECTIONS", "read_served_host", "served_inventory"]
