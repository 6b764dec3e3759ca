from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from kakeya_ops.errors import InventoryError
from kakeya_ops.inventory import Inventory, parse_inventory

BASE = """\
fleet: {name: pair}
model: {path: ~/models/tiny}
hosts:
  head:
    role: head
    api: {port: 8080}
    endpoints: [{network: loopback, address: 127.0.0.1, port: 5001}]
  worker:
    role: worker
    endpoints: [{network: loopback, address: 127.0.0.1, port: 5002}]
"""


@pytest.fixture
def base() -> str:
    """A small inventory without faults."""
    return BASE


@pytest.fixture
def load() -> Callable[[str], Inventory]:
    """Parse indented YAML text."""
    return lambda text: parse_inventory(dedent(text).encode(), "inventory.yaml")


@pytest.fixture
def faults(load: Callable[[str], Inventory]) -> Callable[[str], list[tuple[str, int | None, str]]]:
    """The faults of indented YAML text as (path, line, message)."""

    def find(text: str) -> list[tuple[str, int | None, str]]:
        with pytest.raises(InventoryError) as caught:
            load(text)
        return [(fault.path, fault.line, fault.message) for fault in caught.value.faults]

    return find
