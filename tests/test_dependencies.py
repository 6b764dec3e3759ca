"""What is imported is declared, and what is declared is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]

NOT_IMPORTED = {
    "httptools": "uvicorn takes it when it is there",
    "uvloop": "uvicorn takes it when it is there",
    "websockets": "uvicorn takes it for the dashboard",
}


def declared(requirements: list[str]) -> set[str]:
    """The names of the packages in `requirements`."""
    return {normalized(re.split(r"[\[<>=;\s]", requirement, maxsplit=1)[0]) for requirement in requirements}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: Path) -> Iterator[str]:
    """The foreign top-level names that the modules in `folder` import."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]


def test_the_package_imports_what_it_declares_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    foreign = {name for name in imported(ROOT / "kakeya_ops") if name not in sys.stdlib_module_names} - {"kakeya_ops"}
    providers = packages_distributions()
    used = {normalized(name) for module in foreign for name in providers[module]}
    # pydantic's core is versioned with it, and MLX's parts with MLX.
    used = {name for name in used if name != "pydantic-core" and not re.fullmatch(r"mlx-(cpu|metal)", name)}
    assert declared(project["dependencies"]) - set(NOT_IMPORTED) == used


def test_every_pinned_version_is_a_plain_one() -> None:
    lines = (ROOT / ".ci/constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin) for pin in pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = set().union(*map(declared, groups))
    assert wanted <= {normalized(pin.partition("==")[0]) for pin in pins}
