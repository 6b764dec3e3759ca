"""What a host is asked to carry follows from the inventory, or from what a person asks instead."""

from __future__ import annotations

from kakeya_ops.inventory import load_inventory
from kakeya_ops.memory.demand import Overrides, workload_of
from kakeya_ops.memory.footprint import Workload
from test_layout import ROOT

INVENTORY = load_inventory(ROOT / "inventory.yaml")
GIB = 2**30


def test_every_node_carries_what_the_inventory_promises() -> None:
    head = workload_of(INVENTORY, INVENTORY.host("head"))
    assert head == Workload("head", 8192, concurrency=4, sink=4, window=2048, pool_bytes=4 * GIB)
    assert workload_of(INVENTORY, INVENTORY.host("allens")).concurrency == 4


def test_what_a_person_asks_wins() -> None:
    asked = workload_of(INVENTORY, INVENTORY.host("allens"), Overrides("head", 4096, 2))
    assert (asked.role, asked.context_tokens, asked.concurrency) == ("head", 4096, 2)
    assert workload_of(INVENTORY, INVENTORY.host("allens"), Overrides("head")).concurrency == 4
