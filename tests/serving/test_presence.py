"""Who a node is, whatever it can do."""

from __future__ import annotations

import pytest

from kakeya_ops.serving.presence import NodeSettings, Presence
from kakeya_ops.units import NodeId
from serving.running import KEY, TENANT, make_cache


def test_it_signs_with_the_newest_key_and_answers_to_all() -> None:
    node = make_cache("vault", keys=(KEY,))
    assert (node.id, node.role, node.fleet_key) == ("vault", "cache", KEY)
    assert (node.caller.node, node.caller.epoch, node.caller.instance) == ("vault", node.epoch, node.instance)
    assert make_cache(keys=()).fleet_key is None


def test_it_is_always_some_kind_of_node() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Presence(NodeSettings(NodeId("n"), "cache", TENANT))  # type: ignore[abstract]
