from __future__ import annotations

from collections.abc import Iterator

import pytest

from kakeya_ops.drill.nodes import NodeDoor, Operator
from kakeya_ops.errors import PeerRefused, PeerUnreachable
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from kakeya_ops.wire.drills import Act, Fault
from serving.running import KEY, TENANT, Served, make_cache, simple_identity

OPERATOR = Operator(KEY, TENANT)


@pytest.fixture
def served() -> Iterator[Served]:
    node = Node(NodeSettings(NodeId("cache"), "cache", TENANT, (KEY,), drill=True), BlockPool(2**20), simple_identity())
    with Served(node) as served:
        yield served


def door(served: Served, *ports: int) -> NodeDoor:
    ways = [Endpoint("127.0.0.1", port) for port in (*ports, served.port)]
    return NodeDoor("cache", ways, OPERATOR)


def test_a_fault_is_armed_and_disarmed_over_the_first_way_that_works(served: Served) -> None:
    way = door(served, 1)
    assert way.arm(Fault(act=Act.CUT)).armed is Act.CUT
    assert served.node.faults.armed is not None
    assert way.disarm().met == 0
    assert served.node.faults.armed is None
    way.close()


def test_without_a_way_the_node_is_unreachable() -> None:
    with pytest.raises(PeerUnreachable, match="no endpoint that may be used"):
        NodeDoor("cache", (), OPERATOR).disarm()


def test_a_node_that_takes_no_part_refuses() -> None:
    with Served(make_cache()) as served:
        way = door(served)
        with pytest.raises(PeerRefused) as caught:
            way.disarm()
        way.close()
    assert caught.value.code == "refused"


def test_a_node_is_told_of_cards_and_tells_its_own(served: Served) -> None:
    way, card = door(served), make_cache("victim").card()
    way.tell([card])
    assert served.node.cards.card("victim") == card
    assert way.card().node == "cache"
    way.close()
