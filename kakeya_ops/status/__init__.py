"""What a fleet is doing now, as one value: read-only, from the nodes themselves, the heads' APIs and, where asked, SSH.

The table, ``--json`` and ``--watch`` show the same `FleetStatus`. Nothing here changes a host or a node.
"""

from __future__ import annotations

from kakeya_ops.status.collector import Collector, Sources
from kakeya_ops.status.value import FleetStatus, NodeStatus

__all__ = ["Collector", "FleetStatus", "NodeStatus", "Sources"]
