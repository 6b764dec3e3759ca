"""An inventory for people: one table of the whole fleet, or everything that holds for one host."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.units import render_bytes


def inventory_document(inventory: Inventory, hosts: Sequence[ResolvedHost]) -> dict[str, Any]:
    """As a plain value: the sections that are the fleet's, and the resolved `hosts` by name."""
    common = inventory.model_dump(mode="json", exclude={"hosts", "defaults"})
    return common | {"hosts": {host.name: host.model_dump(mode="json") for host in hosts}}


def hosts_table(inventory: Inventory, hosts: Sequence[ResolvedHost]) -> Table:
    """A row for each of `hosts`, with what tells them apart."""
    window = "the whole context" if inventory.cache.window is None else f"{inventory.cache.window} tokens"
    caption = f"blocks of {inventory.cache.block_tokens} tokens, sink {inventory.cache.sink}, window {window}"
    table = Table(
        title=f"{inventory.fleet.name}: {inventory.model.id}", caption=caption, box=SIMPLE_HEAD, pad_edge=False
    )
    for column in ("host", "role", "memory", "pool", "API", "peer endpoints"):
        table.add_column(column, overflow="fold")
    for host in hosts:
        table.add_row(
            host.name,
            host.role,
            "ask" if host.memory_bytes is None else render_bytes(host.memory_bytes),
            render_bytes(host.pool_bytes),
            "-" if host.api is None else f"{host.api.bind}:{host.api.port}",
            "\n".join(f"{end.address}:{end.port} {'clear' if end.in_clear else 'TLS'}" for end in host.endpoints)
            or "-",
        )
    return table


def host_table(inventory: Inventory, host: ResolvedHost) -> Table:
    """Every key of `host` and its value, once the defaults are merged in."""
    table = Table("key", "value", title=f"{inventory.fleet.name}: {host.name}", box=SIMPLE_HEAD)
    first = {"name": host.name, "role": host.role}
    for key, value in _leaves(first | host.model_dump(mode="json"), ""):
        table.add_row(Text(key), Text(value, overflow="fold"))
    return table


def validity(path: str, inventory: Inventory) -> Text:
    """That the file at `path` is right, whom it names, and which endpoints want certificates."""
    hosts = ", ".join(f"{name} ({host.role})" for name, host in inventory.hosts.items())
    secured = [
        f"{name} at {end.address}"
        for name, host in inventory.hosts.items()
        for end in host.endpoints
        if not end.in_clear
    ]
    by_tls = f"\nby TLS, with certificates from kakeya deploy: {', '.join(secured)}" if secured else ""
    return Text(f"{path} is valid: {hosts}{by_tls}")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


__all__ = ["host_table", "hosts_table", "inventory_document", "validity"]
