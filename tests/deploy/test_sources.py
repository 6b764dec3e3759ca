"""Program and model are found where this installation and the inventory say."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY, inventory
from kakeya_ops.deploy.key_rotation import Pending
from kakeya_ops.deploy.sources import find_sources, read_material
from kakeya_ops.errors import InputError
from kakeya_ops.secret import write_fleet_key


def test_everything_is_read_on_this_machine(home: Path, tiny_llama: Path) -> None:
    fleet = inventory(PLANNER_INVENTORY.replace("~/models/tiny", str(tiny_llama)))
    key = write_fleet_key(home / ".kakeya/fleet.key")
    found = read_material(fleet)
    assert found.key == key
    assert found.program.id == find_sources(fleet)[0].id
    assert found.identity.block_tokens == 64


def test_while_the_key_is_being_replaced_nothing_may_write_one(home: Path, tiny_llama: Path) -> None:
    fleet = inventory(PLANNER_INVENTORY.replace("~/models/tiny", str(tiny_llama)))
    write_fleet_key(home / ".kakeya/fleet.key")
    Pending.of(fleet).begin()
    with pytest.raises(InputError, match="being replaced"):
        read_material(fleet)
