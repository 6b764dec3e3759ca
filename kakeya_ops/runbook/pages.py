"""Pages are Jinja templates in ``runbooks/``: in the package where it is installed, beside it in a checkout."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import ValidationError

import kakeya_ops
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.inventory import Inventory, ResolvedHost, load_inventory
from kakeya_ops.inventory.sections import Role
from kakeya_ops.runbook.reflow import reflow
from kakeya_ops.spelling import did_you_mean

SUFFIX = ".md.j2"
BEGINNING = "first-fleet"
"""The page for whoever has no inventory yet."""
PARTS = ("When", "Check", "Do", "Undo", "Still broken?")
"""The headings of every page, in this order."""
_ANYBODY: tuple[Role, ...] = ("worker", "cache", "head")
_ABOUT: Mapping[str, tuple[Role, ...]] = {
    "head-down": ("head",),
    "move-to-cache-only": ("worker",),
    "slow-link": ("worker", "cache"),
    "worker-down": ("worker", "cache"),
    "wrong-output-suspected": ("worker",),
}
"""Pages about hosts of certain roles, the first choice first; every other may be about `_ANYBODY`."""
_NEWCOMER_PAGE, _NEWCOMER, _NEWCOMER_PORT = "add-a-worker", "new-worker", 53051
"""The page about a host that the inventory need not have yet, what it is called where nobody says, and its port."""


@dataclass(frozen=True)
class Page:
    """One page: its name on the command line, and its title."""

    name: str
    title: str


@dataclass(frozen=True)
class _Shelf:
    folder: Path

    def names(self) -> list[str]:
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))

    def title(self, name: str) -> str:
        first = (self.folder / f"{name}{SUFFIX}").read_text(encoding="utf-8").split("\n", 1)[0]
        return first.removeprefix("# ")


def list_pages() -> tuple[Page, ...]:
    """All pages by name. Raises `EnvironmentFault` where the installation lacks them."""
    shelf = _find_shelf()
    return tuple(Page(name, shelf.title(name)) for name in shelf.names())


def render_page(name: str, inventory: Inventory, host: str | None = None, inventory_file: Path | None = None) -> str:
    """The page called `name` for `host`, by default the first host of the role that the page is about.

    The page about adding a host is by default for one that is not there yet. With `inventory_file` each command names
    it. Raises `InputError` for a page or a host that does not exist, and for a fleet or a host that the page is not
    about.
    """
    shelf = _find_shelf()
    if name not in shelf.names():
        names = shelf.names()
        raise InputError(
            f"there is no runbook {name!r}{did_you_mean(name, names)}", hint=f"there are: {', '.join(names)}"
        )
    about = _choose_host(name, inventory, host)
    template = _environment(shelf.folder).get_template(f"{name}{SUFFIX}")
    return reflow(template.render(_values(inventory, about, inventory_file)))


def load_example() -> Inventory:
    """A fleet of two Macs that need not exist. Raises `EnvironmentFault` where the installation lacks it."""
    return load_inventory(_find_shelf().folder / "two-macs.yaml")


def _environment(folder: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=False,  # this is Markdown for a terminal
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = _quote
    environment.filters["yaml"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment


def _quote(value: object) -> str:
    """`value` as a shell takes it, which looks up a leading ``~/`` itself."""
    text = str(value)
    return f"~/{shlex.quote(text[2:])}" if text.startswith("~/") else shlex.quote(text)


def _ssh_target(host: ResolvedHost) -> str:
    """What stands behind ``ssh``; what begins with a hyphen is no option of it."""
    target = _quote(host.ssh_host)
    return f"-- {target}" if host.ssh_host.startswith("-") else target


def _values(inventory: Inventory, host: ResolvedHost, inventory_file: Path | None) -> dict[str, Any]:
    option = f" --inventory {_quote(inventory_file)}" if inventory_file else ""
    heads, workers, caches = (inventory.with_role(role) for role in ("head", "worker", "cache"))
    return {
        "kakeya": f"kakeya{option}",
        "inventory": inventory,
        "file": _quote(inventory_file or "inventory.yaml"),
        "output": f" --output {_quote(inventory_file)}" if inventory_file else "",
        "host": host,
        "ssh": _ssh_target(host),
        "head": heads[0],
        "heads": heads,
        "workers": workers,
        "caches": caches,
    }


def _choose_host(page: str, inventory: Inventory, name: str | None) -> ResolvedHost:
    roles = _ABOUT.get(page, _ANYBODY)
    if page == _NEWCOMER_PAGE and name not in inventory.hosts:
        return _make_newcomer(inventory, name or _NEWCOMER)
    if name is not None:
        host = inventory.host(name)
        if host.role not in roles:
            raise InputError(f"{name} is a {host.role}, and the runbook {page} is about a {' or a '.join(roles)}")
        return host
    for role in roles:
        for host in inventory.with_role(role):
            return host
    raise InputError(
        f"the inventory has no {' and no '.join(roles)}, which the runbook {page} is about",
        hint="kakeya runbook add-a-worker says how to get one",
    )


def _make_newcomer(inventory: Inventory, name: str) -> ResolvedHost:
    """A worker called `name`, as one line of network would have it."""
    address = f"{name}.local"
    endpoint = {"network": "lan", "address": address, "port": _NEWCOMER_PORT}
    host = {"name": name, "role": "worker", "ssh": {"host": address}, "endpoints": (endpoint,)}
    try:
        return ResolvedHost.model_validate(host | {"pool_gb": inventory.cache.pool_gb})
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{name[:80]!r} cannot be the name of a host: it {said}") from None


def _find_shelf() -> _Shelf:
    package = Path(kakeya_ops.__file__).parent
    for folder in (package / "runbooks", package.parent / "runbooks"):
        if any(folder.glob(f"*{SUFFIX}")):
            return _Shelf(folder)
    raise EnvironmentFault(
        "the runbooks are missing from this installation", hint="install kakeya again; its wheel carries them"
    )


__all__ = ["BEGINNING", "PARTS", "SUFFIX", "Page", "list_pages", "load_example", "render_page"]
