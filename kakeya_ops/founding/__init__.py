"""How a fleet begins: reads the Macs that are named, measures the lines between them, proposes an inventory."""

from __future__ import annotations

from kakeya_ops.founding.founding import Founding, make_key, write_inventory
from kakeya_ops.founding.newcomer import Invitation, make_label
from kakeya_ops.founding.proposal import Choices, Member, Ports, Proposal

__all__ = [
    "Choices",
    "Founding",
    "Invitation",
    "Member",
    "Ports",
    "Proposal",
    "make_key",
    "make_label",
    "write_inventory",
]
