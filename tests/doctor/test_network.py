"""The ways between hosts, from what was read of both ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.states import bare, card, planner, settled
from doctor.patients import HEALTHY, in_fleet, patient
from kakeya_ops.doctor.facts import HostFacts, Way
from kakeya_ops.doctor.finding import Finding
from kakeya_ops.doctor.network import check_network
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.inventory import Endpoint
from kakeya_ops.observe.interfaces import Interface
from kakeya_ops.observe.state import Unknown
from kakeya_ops.wire.cards import CardLink

CABLE = Endpoint(network="thunderbolt", address="169.254.10.2", port=53051, trusted=True)


def to_allens(refusal: str | None = None, interface: str | Unknown = "bridge0", mtu: int = 1500) -> HostFacts:
    ways = (Way("allens", CABLE, interface, refusal),)
    return replace(HEALTHY, interfaces={"bridge0": Interface(mtu, ())}, ways=ways)


def look(one: Patient, code: str, **others: Patient) -> list[Finding]:
    return [finding for finding in check_network(one, in_fleet(**others)) if finding.code == code]


def running(name: str, *links: CardLink) -> Patient:
    return patient(name, state=settled(planner(), name, card=card(name, links=links)))


def test_each_link_says_what_it_carries() -> None:
    assert [finding.found for finding in look(patient(), "link")] == [
        "thunderbolt 169.254.10.2:53051: in clear, marked trusted",
        "lan allens.local:53051: only encrypted, it is not marked trusted",
    ]


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_both_ends_of_a_cable_take_packets_of_one_length(mtu: int) -> None:
    [finding] = look(patient("head", to_allens(mtu=mtu)), "mtu", allens=patient())
    assert finding.verdict == ("ok" if mtu == 1500 else "failed")
    assert f"{mtu} bytes on bridge0 here, 1500 on bridge0 of allens" == finding.found


def test_an_mtu_that_nobody_knows_is_no_finding() -> None:
    assert not look(patient("head", to_allens(interface=Unknown("no route"))), "mtu", allens=patient())
    assert not look(patient("head", to_allens()), "mtu", allens=patient(facts=Unknown("broken")))  # type: ignore[arg-type]
    assert look(patient("head", to_allens(interface=Unknown("no route"))), "route")[0].verdict == "unknown"


@pytest.mark.parametrize(
    ("refusal", "other", "verdict"),
    [
        (None, running("allens"), "ok"),
        ("no answer within 3 s", running("allens"), "failed"),
        ("nothing listens there", patient(state=bare("allens")), "unknown"),
    ],
)
def test_a_port_that_does_not_answer_fails_only_where_something_should(
    refusal: str | None, other: Patient, verdict: str
) -> None:
    [finding] = look(patient("head", to_allens(refusal)), "port", allens=other)
    assert finding.verdict == verdict


def test_the_process_itself_says_whom_it_reaches() -> None:
    head = running(
        "head",
        CardLink(node="allens", network="thunderbolt", error="169.254.10.2:53051: No route to host"),
        CardLink(node="boris", network="lan"),
    )
    kept_out, well = look(head, "process", allens=running("allens"))
    assert (kept_out.verdict, "No route to host" in kept_out.found) == ("failed", True)
    assert "Local Network" in (kept_out.fix or "")
    assert "kakeya restart head" in (kept_out.fix or "")
    assert (well.verdict, well.found) == ("ok", "the service itself reaches boris by lan")


def test_a_process_that_others_refuse_is_no_matter_of_the_local_network() -> None:
    head = running("head", CardLink(node="allens", network="lan", error="Connection refused"))
    [finding] = look(head, "process", allens=running("allens"))
    assert "Local Network" not in (finding.fix or "")
    [finding] = look(head, "process", allens=patient(state=bare("allens")))
    assert (finding.verdict, finding.fix) == ("unknown", "kakeya deploy allens")


def test_a_node_that_says_nothing_is_unknown_and_one_that_is_not_there_is_not_asked() -> None:
    silent = patient(state=settled(planner(), "allens", card=Unknown("nothing answers")))
    assert look(silent, "process")[0].verdict == "unknown"
    assert not look(patient(state=bare("allens")), "process")


def test_the_firewall_goes_by_the_python_of_the_service() -> None:
    wall = replace(HEALTHY, firewall=True)
    [finding] = look(patient(facts=wall), "firewall")
    python = finding.found.split("on, and ")[1].split(" is not")[0]
    assert (finding.verdict, python.endswith("/venv/bin/python")) == ("warning", True)
    assert f"--add {python}" in (finding.fix or "")
    assert look(patient(facts=replace(wall, allowed=frozenset({python}))), "firewall")[0].verdict == "ok"
