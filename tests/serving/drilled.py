"""A cache peer that may be drilled, and what its peers ask of it."""

from __future__ import annotations

from typing import Literal

from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.peer.client import PeerClient, WantedBlock
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from kakeya_ops.wire.bodies import LookupReply
from kakeya_ops.wire.drills import Act, Fault
from serving.running import KEY, TENANT, Served, block_hash, fill, floats, simple_identity

HASHES = [block_hash(index) for index in range(1, 6)]


def make_node(*, drill: bool = True) -> Node:
    """It holds the blocks of `HASHES`, which can be packed."""
    settings = NodeSettings(NodeId("cache"), "cache", TENANT, (KEY,), drill=drill)
    node = Node(settings, BlockPool(2**24), simple_identity())
    fill(node.pool, node.identity.layout, HASHES, floats)
    return node


def arm(served: Served, act: Act, **more: object) -> None:
    """For the next four requests that it is for: a client asks again over a connection that was idle."""
    served.node.faults.arm(Fault.model_validate({"act": act, "uses": 4, **more}))


def look_up(served: Served, client: PeerClient) -> LookupReply:
    """What it says that it holds of `HASHES`."""
    return client.lookup(served.node.identity.digest, HASHES)


def fetch(served: Served, client: PeerClient, packing: Literal["exponents"] | None = None) -> tuple[int, bool]:
    """How many parts came of the first of each block, and whether any of them was smaller on the way."""
    wanted, smaller = [WantedBlock(index, 0, hash) for index, hash in enumerate(HASHES)], []
    report = client.fetch(
        served.node.identity.digest,
        wanted,
        lambda arrival: smaller.append(arrival.wire_bytes < arrival.stored.nbytes),
        packing=packing,
    )
    return report.parts, any(smaller)


__all__ = ["HASHES", "arm", "fetch", "look_up", "make_node"]
