"""Where program and model come from: this installation, and the model directory on this machine."""

from __future__ import annotations

from kakeya_ops.deploy.certificates import read_fleet_authority
from kakeya_ops.deploy.key_rotation import refuse_during_rotation
from kakeya_ops.deploy.material import Material, ModelSource, ProgramSource, read_key
from kakeya_ops.deploy.model_sync import read_model
from kakeya_ops.deploy.planned_identity import plan_with_memory
from kakeya_ops.deploy.program import find_program
from kakeya_ops.inventory import Inventory


def read_material(inventory: Inventory, program: ProgramSource | None = None) -> Material:
    """Everything that this machine contributes; `program` is the one that runs now, where it was found already.

    Raises `KakeyaError`: no key or one that is being replaced, no model, no program to install.
    """
    refuse_during_rotation(inventory)
    authority = read_fleet_authority(inventory)
    found, model = find_sources(inventory, program)
    return Material(read_key(inventory), plan_with_memory(inventory, found.id), found, model, authority)


def find_sources(inventory: Inventory, program: ProgramSource | None = None) -> tuple[ProgramSource, ModelSource]:
    """The program and the model."""
    return program or find_program(), read_model(inventory)


__all__ = ["find_sources", "read_material"]
