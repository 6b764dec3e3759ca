from __future__ import annotations

import pytest

from kakeya_ops.drill.catalogue import CATALOGUE, Kind, kind_named
from kakeya_ops.wire.drills import FATAL, Act
from kakeya_ops.wire.statuses import STATUSES

REASONS = {code for _, code in STATUSES.values()} | {
    "unreachable",
    "timeout",
    "busy",
    "refused",
    "corrupt",
    "gone",
    "overrun",
}


def test_there_are_many_kinds_each_with_a_name_of_its_own() -> None:
    assert len({kind.name for kind in CATALOGUE}) == len(CATALOGUE) >= 40
    assert len({kind.what for kind in CATALOGUE}) == len(CATALOGUE)


def test_every_act_is_tried_by_some_kind() -> None:
    assert {kind.fault.act for kind in CATALOGUE if kind.fault} == set(Act)


@pytest.mark.parametrize("kind", CATALOGUE, ids=lambda kind: kind.name)
def test_a_kind_says_where_it_happens_what_it_leads_to_and_how_it_ends(kind: Kind) -> None:
    assert [kind.fault is not None, kind.claim is not None, kind.intrusion is not None].count(True) == 1
    assert (kind.claim is not None, kind.intrusion is not None) == (kind.trial == "card", kind.trial == "intrusion")
    assert kind.expected <= REASONS | {"remote", "avoided"}
    assert kind.expected
    assert kind.undone
    assert kind.fatal == (kind.fault is not None and kind.fault.act in FATAL)
    assert (kind.trial == "head") == (kind.name == "head-restart")
    assert (kind.trial == "joint") == (kind.name == "one-of-several")


def test_only_streams_can_be_told_from_those_of_others() -> None:
    brief = [kind.fault for kind in CATALOGUE if kind.fault and kind.fault.on == "lookup"]
    assert brief
    assert all(fault.uses <= 2 for fault in brief)


def test_kinds_are_found_by_name() -> None:
    assert kind_named("cut-first") is CATALOGUE[0]
    assert kind_named("cut") is None
