"""Macs as they are read, without reading any."""

from __future__ import annotations

from typing import Any

from kakeya_ops.founding import Choices, Invitation
from kakeya_ops.founding.newcomer import Newcomer
from kakeya_ops.memory.facts import pinned
from kakeya_ops.observe.interfaces import Interface

CHOICES = Choices("home", "~/models/tiny", "head")


def newcomer(name: str, gigabytes: float = 16, ssh: str | None = None, **changes: Any) -> Newcomer:
    values: dict[str, Any] = {
        "invitation": Invitation(name, ssh or f"{name}.local"),
        "user": "fluffy",
        "chip": "Apple M4",
        "memory": pinned(gigabytes),
        "interfaces": {
            "en0": Interface(1500, ("fe80::1", "192.0.2.10")),
            "bridge0": Interface(1500, ("169.254.10.2",)),
        },
    }
    return Newcomer(**(values | changes))
