"""What the map says of each node, and the one sentence that says it all."""

from __future__ import annotations

from dashboard.hostile import MARKUP, SCRIPTED, TURNED, HostileHead
from kakeya_ops.dashboard.fleet_map import fleet_sentence, peer_places
from kakeya_ops.dashboard.reading import Reader, Reading


def reading(head: HostileHead | None = None) -> Reading:
    return Reader(head or HostileHead()).read("fleet")


def test_every_node_has_its_way_its_state_and_its_figures() -> None:
    places = {place.name: place for place in peer_places(reading())}
    assert places["allens"].link == ("thunderbolt", "RTT 520 µs", "2.1 GiB/s")
    assert ("Prefill", "812 tokens/s") in places["allens"].facts
    assert ("Memory free", "4.4 GiB") in places["allens"].facts
    assert places["allens"].trouble == ""
    assert places[MARKUP].state == "failing"
    assert places[SCRIPTED].trouble.startswith("field evil")


def test_of_a_node_without_a_card_only_the_reason_is_known() -> None:
    gone = peer_places(reading())[3]
    assert (gone.state, gone.facts, gone.pool) == ("unreachable", (), (0, 0))
    assert gone.link == ("lan link down",)
    assert gone.trouble.startswith("connection refused")
    assert "\n" not in gone.name
    assert gone.name == "evil emas second line [31m"
    assert gone.name != TURNED


def test_why_a_node_is_in_quarantine_is_said() -> None:
    class Careful(HostileHead):
        def nodes(self, tenant: str) -> dict[str, object]:
            nodes = super().nodes(tenant)
            nodes["nodes"][0]["quarantine"] = {"reason": f"its KV of {MARKUP} differs"}
            return nodes

        def topology(self) -> dict[str, object]:
            topology = super().topology()
            next(node for node in topology["nodes"] if node["node"] == "allens")["state"] = "in quarantine"
            return topology

    place = next(place for place in peer_places(reading(Careful())) if place.name == "allens")
    assert (place.state, place.trouble) == ("in quarantine", f"its KV of {MARKUP} differs")


def test_one_way_is_said() -> None:
    class OneWay(HostileHead):
        def topology(self) -> dict[str, object]:
            topology = super().topology()
            topology["links"][3]["one_way"] = True
            return topology

    assert peer_places(reading(OneWay()))[3].trouble == "it reaches the head, but the head does not reach it"


def test_the_sentence_names_every_fault_or_says_that_there_is_none() -> None:
    sentence = fleet_sentence(reading())
    assert "evil emas second line [31m is unreachable" in sentence
    assert "allens" not in sentence

    class Well(HostileHead):
        def nodes(self, tenant: str) -> dict[str, object]:
            nodes = super().nodes(tenant)
            return nodes | {"nodes": nodes["nodes"][:1]}

    assert fleet_sentence(reading(Well())) == "every node is usable"


def test_a_head_whose_engine_is_dead_comes_first() -> None:
    class Dead(HostileHead):
        def nodes(self, tenant: str) -> dict[str, object]:
            nodes = super().nodes(tenant)
            return nodes | {"head": nodes["head"] | {"healthy": False}, "nodes": []}

    assert fleet_sentence(reading(Dead())) == "the head's engine does not answer"
