"""The only reader of the environment: besides ``PATH`` three names, each of which is also an option or has a default.

=====================  =====================================================================
``KAKEYA_INVENTORY``   the inventory, when ``--inventory`` is not given
``XDG_CONFIG_HOME``    where the user's configuration folder is (default ``~/.config``)
``XDG_CACHE_HOME``     where the user's cache folder is (default ``~/.cache``, on macOS ``~/Library/Caches``)
=====================  =====================================================================
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from kakeya_ops.errors import InputError

_FOLDER = "kakeya"
_INVENTORY = "inventory.yaml"


def inventory_from_environment() -> Path | None:
    """The file that ``$KAKEYA_INVENTORY`` names, or None when it is unset or empty."""
    value = os.environ.get("KAKEYA_INVENTORY", "")
    return expand_here(value) if value else None


def usual_inventories() -> tuple[Path, Path]:
    """Where an inventory is that nobody named: in this folder, or else in the user's own."""
    return Path(_INVENTORY), user_config_folder() / _INVENTORY


def user_config_folder() -> Path:
    """The folder of this user's Kakeya configuration; it need not exist."""
    return _xdg_folder("XDG_CONFIG_HOME", "~/.config")


def user_cache_folder() -> Path:
    """The folder of what Kakeya may compute again; it need not exist."""
    return _xdg_folder("XDG_CACHE_HOME", "~/Library/Caches" if sys.platform == "darwin" else "~/.cache")


def own_command() -> str:
    """What a person types in this folder to run this program again: its name, where the shell would find it."""
    found, started = shutil.which("kakeya"), Path(sys.argv[0])
    if started.name != "kakeya" or (found and Path(found).resolve() == started.resolve()):
        return "kakeya"
    return os.path.relpath(started) if started.resolve().is_relative_to(Path.cwd()) else str(started)


def expand_here(path: str) -> Path:
    """`path` with ``~`` as the home folder of the user who runs this process on this machine.

    Raises `InputError` if that folder is unknown.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{path} cannot be expanded: {error}", hint="write the path without ~") from error


def _xdg_folder(name: str, default: str) -> Path:
    value = os.environ.get(name, "")
    # The XDG rules say that a relative path is to be ignored.
    return (Path(value) if os.path.isabs(value) else expand_here(default)) / _FOLDER


__all__ = [
    "expand_here",
    "inventory_from_environment",
    "own_command",
    "user_cache_folder",
    "user_config_folder",
    "usual_inventories",
]
