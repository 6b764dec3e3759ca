"""Inventories of nodes that tests serve themselves."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_ops.inventory import Inventory, parse_inventory
from serving.running import TENANT

_CLOSED = 1
"""A port on which nobody listens."""


def cache_inventory(ports: Mapping[str, int], more: str = "") -> Inventory:
    """Caches by name, each at its port of loopback, and a head that is not there."""
    lines = [f"fleet: {{name: pair, tenant: {TENANT}}}", "model: {path: /models/tiny}", "hosts:"]
    lines += ["  head:", "    role: head", f"    api: {{port: {_CLOSED}}}"]
    for name, port in ports.items():
        endpoint = f"{{network: loopback, address: 127.0.0.1, port: {port}}}"
        lines += [f"  {name}:", "    role: cache", f"    endpoints: [{endpoint}]"]
    return parse_inventory(("\n".join(lines) + "\n" + more).encode(), "inventory.yaml")
