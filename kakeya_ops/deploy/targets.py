"""Which hosts a person means."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya_ops.errors import InputError
from kakeya_ops.inventory import Inventory
from kakeya_ops.inventory.fields import ALL
from kakeya_ops.spelling import did_you_mean


def select_hosts(inventory: Inventory, targets: Iterable[str]) -> tuple[str, ...]:
    """The hosts that `targets` name (hosts, groups, or ``all``), each once, in the inventory's order.

    Raises `InputError` for a name that is neither.
    """
    wanted: set[str] = set()
    for target in targets:
        if target == ALL:
            wanted.update(inventory.hosts)
        elif target in inventory.groups:
            wanted.update(inventory.groups[target])
        elif target in inventory.hosts:
            wanted.add(target)
        else:
            known = (*inventory.hosts, *inventory.groups, ALL)
            raise InputError(
                f"the inventory has no host or group {target!r}{did_you_mean(target, known)}",
                hint=f"targets are: {', '.join(known)}",
            )
    return tuple(name for name in inventory.hosts if name in wanted)


__all__ = ["select_hosts"]
