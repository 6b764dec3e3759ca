"""Pages are Jinja templates in ``runbooks/``: in the package where it is installed, beside it in a checkout."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import kakeya_ops
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.spelling import did_you_mean

SUFFIX = ".md.j2"
PARTS = ("When", "Check", "Do", "Undo", "Still broken?")
"""The headings of every page, in this order."""


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
    """The page called `name` for `host`, by default the first that is no head.

    With `inventory_file` each command names it. Raises `InputError` for a page or a host that does not exist.
    """
    shelf = _find_shelf()
    if name not in shelf.names():
        names = shelf.names()
        raise InputError(
            f"there is no runbook {name!r}{did_you_mean(name, names)}", hint=f"there are: {', '.join(names)}"
        )
    environment = Environment(
        loader=FileSystemLoader(shelf.folder),
        autoescape=False,  # this is Markdown for a terminal
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    values = _values(inventory, _choose_host(inventory, host), inventory_file)
    return environment.get_template(f"{name}{SUFFIX}").render(values)


def _values(inventory: Inventory, host: ResolvedHost, inventory_file: Path | None) -> dict[str, Any]:
    option = f" --inventory {shlex.quote(str(inventory_file))}" if inventory_file else ""
    return {
        "kakeya": f"kakeya{option}",
        "inventory": inventory,
        "file": shlex.quote(str(inventory_file or "inventory.yaml")),
        "host": host,
        "ssh": shlex.quote(host.ssh_host),
        "heads": inventory.with_role("head"),
        "workers": inventory.with_role("worker"),
        "caches": inventory.with_role("cache"),
    }


def _choose_host(inventory: Inventory, name: str | None) -> ResolvedHost:
    if name is not None:
        return inventory.host(name)
    others = [*inventory.with_role("worker"), *inventory.with_role("cache"), *inventory.with_role("head")]
    return others[0]


def _find_shelf() -> _Shelf:
    package = Path(kakeya_ops.__file__).parent
    for folder in (package / "runbooks", package.parent / "runbooks"):
        if any(folder.glob(f"*{SUFFIX}")):
            return _Shelf(folder)
    raise EnvironmentFault(
        "the runbooks are missing from this installation", hint="install kakeya again; its wheel carries them"
    )


__all__ = ["PARTS", "SUFFIX", "Page", "list_pages", "render_page"]
