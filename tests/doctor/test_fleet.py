"""One process for each name, one release, one cache identity."""

from __future__ import annotations

from typing import Any

from deploy.states import card, planner, settled
from doctor.patients import in_fleet, patient
from kakeya_ops.doctor.finding import Finding
from kakeya_ops.doctor.fleet import check_fleet
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.observe.state import Unknown
from kakeya_ops.wire.cards import Card
from serving.running import simple_identity
from status.samples import RUNTIME


def node(name: str, own: Card | None = None, *known: Card, **changes: Any) -> Patient:
    values = {"role": "head" if name == "head" else "worker", "runtime": RUNTIME.to_json()} | changes
    return patient(name, state=settled(planner(), name, card=own or card(name, **values)), known=known)


def look(code: str, **patients: Patient) -> list[Finding]:
    return [finding for finding in check_fleet(in_fleet(**patients)) if finding.code == code]


def test_two_processes_with_one_name_are_found_by_what_others_know() -> None:
    stranger = card("allens", instance="cd" * 16, issued_at=1000.0)
    [head, worker] = look("node-id", head=node("head", None, stranger), allens=node("allens"))
    assert (head.verdict, worker.verdict) == ("ok", "failed")
    assert worker.found == "2 running processes are called allens"


def test_the_card_of_the_process_before_is_no_second_one() -> None:
    before = card("allens", instance="cd" * 16, issued_at=3.0)
    assert {finding.verdict for finding in look("node-id", head=node("head", None, before), allens=node("allens"))} == {
        "ok"
    }


def test_other_releases_are_named() -> None:
    [head, worker] = look("version", head=node("head", version="0.2.0"), allens=node("allens", version="0.1.0"))
    assert (head.verdict, worker.found) == ("warning", "0.1.0 here; the fleet has 0.1.0, 0.2.0")
    assert worker.fix == "kakeya deploy all"


def test_another_identity_is_named_by_its_first_field() -> None:
    document = simple_identity().to_json() | {"window": 64}
    theirs = card("allens", role="worker", runtime=RUNTIME.to_json(), identity="1" * 64, identity_document=document)
    [finding] = look("identity", head=node("head"), allens=node("allens", theirs))
    assert finding.verdict == "failed"
    assert finding.found.startswith("differs from head's in ")
    [same] = look("identity", head=node("head"), allens=node("allens"))
    assert same.verdict == "ok"


def test_a_head_that_does_not_tell_its_identity_leaves_it_unknown() -> None:
    [finding] = look("identity", head=node("head", identity_document=None), allens=node("allens"))
    assert (finding.verdict, finding.fix) == ("unknown", "kakeya logs head")


def test_nodes_that_do_not_answer_are_not_compared() -> None:
    gone = patient(state=settled(planner(), "allens", card=Unknown("nothing answers")))
    assert not look("identity", head=node("head"), allens=gone)


def test_whom_a_head_holds_in_quarantine_is_found_on_its_card() -> None:
    [finding] = look("quarantine", head=node("head", quarantine=("allens",)), allens=node("allens"))
    assert (finding.host, finding.verdict) == ("head", "failed")
    assert "allens" in finding.found
    assert finding.fix
    assert "kakeya quarantine list" in finding.fix
    [fine] = look("quarantine", head=node("head"), allens=node("allens"))
    assert fine.verdict == "ok"
