"""The inventory: one YAML file that says what a fleet is.

`sections` and `models` say what may be in it, `loader` reads it and tells every fault at once, `reference` makes the
JSON Schema and the documentation of it. Nothing here looks at a host or at a model.
"""

from __future__ import annotations

from kakeya_ops.inventory.loader import find_inventory, load_inventory, parse_inventory
from kakeya_ops.inventory.models import Inventory, ResolvedHost
from kakeya_ops.inventory.sections import Endpoint, Host

__all__ = [
    "Endpoint",
    "Host",
    "Inventory",
    "ResolvedHost",
    "find_inventory",
    "load_inventory",
    "parse_inventory",
]
