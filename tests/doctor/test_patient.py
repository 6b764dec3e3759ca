"""One host, and how a fact that is missing becomes a finding."""

from __future__ import annotations

from doctor.patients import HEALTHY, patient
from kakeya_ops.observe.state import Unknown


def test_a_fact_that_is_missing_is_an_unknown_finding_with_its_reason() -> None:
    one = patient()
    finding = one.about(
        "sleep", Unknown("the host has no program to tell it"), lambda minutes: one.say("sleep", "ok", "")
    )
    assert (finding.verdict, finding.found) == ("unknown", "the host has no program to tell it")
    assert finding.fix == "ssh allens, and look there"
    assert one.about("sleep", 3, lambda minutes: one.say("sleep", "ok", f"{minutes}")).found == "3"


def test_facts_that_could_not_be_read_are_all_unknown() -> None:
    broken = patient(facts=Unknown("the connection broke"))  # type: ignore[arg-type]
    assert broken.fact(lambda facts: facts.filevault) == Unknown("the connection broke")
    assert patient().fact(lambda facts: facts.filevault) == HEALTHY.filevault


def test_a_host_that_is_no_mac_is_known_as_such() -> None:
    one = patient()
    assert one.is_mac
    assert one.places.label == "dev.kakeya.pair.allens"
