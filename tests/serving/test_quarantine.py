"""Who is held, why, and what that does to the names of blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya_ops.errors import InputError, RefusedError
from kakeya_ops.serving.quarantine import MOST_REASON_CHARACTERS, MOST_RELEASED, Evidence, Quarantine, State
from serving.findings import EVIDENCE


class Kept:
    """A storage that remembers what it was given."""

    def __init__(self) -> None:
        self.states: list[State] = []

    def save(self, state: State) -> None:
        self.states.append(state)


def held(*nodes: str, storage: Kept | None = None) -> Quarantine:
    quarantine = Quarantine(storage=storage, clock=lambda: 1000.0)
    for node in nodes:
        assert quarantine.hold(node, EVIDENCE)
    return quarantine


def test_nobody_is_held_at_first_and_names_are_the_tenants_own() -> None:
    quarantine = held()
    assert quarantine.holds("allens") is None
    assert quarantine.space("team") == "team"


def test_who_is_held_is_held_with_the_reason() -> None:
    found = held("allens").holds("allens")
    assert found is not None
    assert (found.node, found.held_at, found.evidence) == ("allens", 1000.0, EVIDENCE)
    assert found.reason == "its KV of tokens 128 to 191 of request r1 differs from what this head computes"


def test_how_far_it_is_off_is_written_in_later() -> None:
    quarantine = held("allens", "other")
    quarantine.complete("allens", 0.25)
    found, other = quarantine.holds("allens"), quarantine.holds("other")
    assert found is not None
    assert found.evidence == replace(EVIDENCE, max_deviation=0.25)
    assert found.reason.endswith(", by up to 0.25 standard deviations")
    assert other is not None
    assert other.evidence.max_deviation is None


def test_the_first_evidence_stays() -> None:
    quarantine = held("allens")
    generation = quarantine.state.generation
    assert not quarantine.hold("allens", replace(EVIDENCE, request_id="r2"))
    assert (quarantine.state.held[0].evidence, quarantine.state.generation) == (EVIDENCE, generation)


def test_each_finding_gives_all_blocks_new_names_for_good() -> None:
    quarantine, spaces = Quarantine(), {"team"}
    for node in ("allens", "other"):
        quarantine.hold(node, EVIDENCE)
        spaces.add(quarantine.space("team"))
    assert len(spaces) == 3
    last = quarantine.space("team")
    quarantine.release("allens", "new memory")
    assert quarantine.space("team") == last
    quarantine.hold("allens", EVIDENCE)
    assert quarantine.space("team") not in spaces
    assert quarantine.space("team") != quarantine.space("mate")


def test_heads_share_names_only_after_the_same_findings() -> None:
    other_process: Evidence = replace(EVIDENCE, instance="cd" * 16)
    assert held("a", "b").space("t") == held("a", "b").space("t") != held("b", "a").space("t")
    other = Quarantine()
    other.hold("a", other_process)
    assert other.space("t") != held("a").space("t")


def test_a_release_is_kept_with_its_reason() -> None:
    storage = Kept()
    quarantine = held("allens", "other", storage=storage)
    assert storage.states == []  # a finding is made where nothing may wait for a disk
    freed = quarantine.release("allens", "  memory\n replaced ")
    assert (freed.node, freed.released_at, freed.release_reason) == ("allens", 1000.0, "memory replaced")
    assert quarantine.holds("allens") is None
    assert quarantine.holds("other") is not None
    assert storage.states == [quarantine.state]
    assert quarantine.state.released == (freed,)


@pytest.mark.parametrize("reason", ["", " \n", "x" * (MOST_REASON_CHARACTERS + 1), "a\x1b[2J"])
def test_a_release_needs_a_reason(reason: str) -> None:
    quarantine = held("allens")
    with pytest.raises(InputError, match="reason"):
        quarantine.release("allens", reason)
    assert quarantine.holds("allens")


def test_a_release_is_logged_with_what_a_program_can_read(caplog: pytest.LogCaptureFixture) -> None:
    held("allens").release("allens", "new memory")
    [line] = caplog.records
    assert (line.message, line.__dict__["worker"]) == ("released from quarantine", "allens")
    assert (line.__dict__["reason"], line.__dict__["epoch"]) == ("new memory", EVIDENCE.epoch)


def test_who_is_not_held_cannot_be_released() -> None:
    with pytest.raises(RefusedError, match="not in quarantine") as caught:
        held("allens").release("other", "because")
    assert caught.value.hint == "nodes that are: allens"


def test_the_released_are_bounded() -> None:
    quarantine = Quarantine()
    for index in range(MOST_RELEASED + 3):
        quarantine.hold(f"n{index}", EVIDENCE)
        quarantine.release(f"n{index}", "because")
    assert [one.node for one in quarantine.state.released][:: MOST_RELEASED - 1] == ["n3", f"n{MOST_RELEASED + 2}"]


def test_a_state_is_read_as_it_was_written() -> None:
    quarantine = held("allens", "other")
    quarantine.complete("other", 1.5)
    quarantine.release("allens", "because")
    assert State.from_json(quarantine.state.to_json()) == quarantine.state


@pytest.mark.parametrize(
    "document", [None, [], {"held": [{"node": "a"}]}, {"generation": 1}, {"held": [{"node": "a", "held_at": "soon"}]}]
)
def test_anything_else_is_no_state(document: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are pydantic's
        State.from_json(document)


def test_a_node_held_twice_is_no_state() -> None:
    document = held("allens").state.to_json()
    with pytest.raises(ValueError, match="twice"):
        State.from_json(document | {"held": document["held"] * 2})
