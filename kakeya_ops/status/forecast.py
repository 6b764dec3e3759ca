"""What each node is to need in memory, as far as that can be known on this machine."""

from __future__ import annotations

from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import Inventory
from kakeya_ops.memory.assessment import read_model
from kakeya_ops.memory.demand import workload_of
from kakeya_ops.memory.footprint import Footprint, estimate
from kakeya_ops.memory.shape import ModelShape
from kakeya_ops.settings import expand_here


def forecast_needs(inventory: Inventory) -> dict[str, Footprint]:
    """The need of every host that can be forecast: of those with a model only where the model is on this machine."""
    shape = _read_shape(inventory)
    needs: dict[str, Footprint] = {}
    for name, host in inventory.hosts.items():
        if host.role != "cache" and shape is None:
            continue
        try:
            used = None if host.role == "cache" else shape
            needs[name] = estimate(used, workload_of(inventory, inventory.host(name)))
        except KakeyaError:
            continue
    return needs


def _read_shape(inventory: Inventory) -> ModelShape | None:
    try:
        model = read_model(expand_here(inventory.model.path))
    except KakeyaError:
        return None
    return model if isinstance(model, ModelShape) else None


__all__ = ["forecast_needs"]
