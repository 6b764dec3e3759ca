"""What docs/architecture.md says of the packages, and what import-linter holds them to, are the same layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def enforced() -> list[str]:
    """The packages of the contract, from the top."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [layers] = [one["layers"] for one in document["tool"]["importlinter"]["contracts"] if one["id"] == "layers"]
    return [name for layer in layers for name in re.findall(r"\w+", layer)]


def described() -> list[str]:
    """The packages of the page's table, from the top."""
    _, _, rest = (ROOT / "docs/architecture.md").read_text().partition("| package | what it is |")
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]


def test_the_page_has_every_layer_in_the_order_that_is_enforced() -> None:
    assert described() == enforced()
