"""What a shell may offer while a command line is typed: names of the inventory, of runbooks and of drills.

It is asked at every press of a key, so the inventory is read for its names alone, also where it has faults. Nothing is
ever said instead of an answer, no host is asked, and nothing slow is imported.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from kakeya_ops.settings import expand_here, inventory_from_environment, usual_inventories

Offers = list[str | tuple[str, str]]

_MOST_BYTES = 256 * 1024
"""As much as an inventory may have."""
_ROLES = ("head", "worker", "cache")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What may be offered. A shell may carry out what other names hold, and anybody may have written them."""


def offer_targets(ctx: typer.Context, incomplete: str) -> Offers:
    """Hosts, groups and ``all``, but for those that are there already."""
    section = _read_inventory(ctx)
    names: Offers = [
        *((name, role) for name, role in _hosts(section)),
        *((name, "group") for name in _mapping(section.get("groups")) if _PLAIN.fullmatch(name)),
        ("all", "every host"),
    ]
    given = {word for value in ctx.params.values() if isinstance(value, (list, tuple)) for word in value}
    return [one for one in names if one[0] not in given]


def offer_hosts(ctx: typer.Context, incomplete: str) -> Offers:
    """Hosts, each with its role."""
    return list(_hosts(_read_inventory(ctx)))


def offer_workers(ctx: typer.Context, incomplete: str) -> Offers:
    """Hosts that are workers."""
    return _with_role(ctx, "worker")


def offer_served(ctx: typer.Context, incomplete: str) -> Offers:
    """Hosts with the role that the command serves, which is its name."""
    return _with_role(ctx, ctx.info_name)


def offer_roles(ctx: typer.Context, incomplete: str) -> Offers:
    """The roles."""
    return list(_ROLES)


def offer_runbooks(ctx: typer.Context, incomplete: str) -> Offers:
    """The runbooks, each with its title."""
    from kakeya_ops.runbook import list_pages

    return [(page.name, page.title) for page in list_pages()]


def offer_drills(ctx: typer.Context, incomplete: str) -> Offers:
    """The kinds of fault that a drill knows."""
    from kakeya_ops.drill.catalogue import CATALOGUE

    return [(kind.name, kind.what) for kind in CATALOGUE]


def offer_bench_targets(ctx: typer.Context, incomplete: str) -> Offers:
    """The targets of a bench."""
    from kakeya_ops.bench.targets import KINDS

    return [(kind.name, kind.description) for kind in KINDS.values()]


def _with_role(ctx: typer.Context, role: str | None) -> Offers:
    return [name for name, of_host in _hosts(_read_inventory(ctx)) if of_host == role]


def _hosts(inventory: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, host in _mapping(inventory.get("hosts")).items():
        role = _mapping(host).get("role")
        if _PLAIN.fullmatch(name):
            yield name, role if role in _ROLES else ""


def _read_inventory(ctx: typer.Context) -> dict[str, Any]:
    """The document that the command would read, as it stands; empty where there is none or it is no YAML."""
    import yaml

    path = _find(ctx.find_root().params.get("inventory_path"))
    with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
        if path is not None and stat.S_ISREG(path.stat().st_mode):
            with path.open("rb") as file:
                return _mapping(yaml.safe_load(file.read(_MOST_BYTES)))
    return {}


def _find(named: Path | None) -> Path | None:
    """A shell passes what was typed, with its ``~``."""
    path = expand_here(str(named)) if named else inventory_from_environment()
    return path or next((usual for usual in usual_inventories() if usual.is_file()), None)


def _mapping(value: object) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if isinstance(key, str)} if isinstance(value, dict) else {}


__all__ = [
    "Offers",
    "offer_bench_targets",
    "offer_drills",
    "offer_hosts",
    "offer_roles",
    "offer_runbooks",
    "offer_served",
    "offer_targets",
    "offer_workers",
]
