"""What the doctor's own script prints, read; what it does not print is unknown, with the reason."""

from __future__ import annotations

from doctor.patients import pair
from kakeya_ops.doctor.facts import HostFacts, read_facts
from kakeya_ops.observe.state import Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost


def read() -> HostFacts:
    host = pair().host("head")
    return read_facts(LocalRunner("allens"), [("head", endpoint) for endpoint in host.endpoints])


def test_the_facts_of_a_mac(mac: MacHost) -> None:
    mac.set(firewall=True, firewall_allows=("/opt/one two/python",), mtu={"bridge0": 9000}, clock_ahead_seconds=100)
    facts = read()
    assert isinstance(facts.clock_ahead_seconds, float)
    assert abs(facts.clock_ahead_seconds - 100) <= facts.clock_doubt_seconds + 1
    assert (facts.filevault, facts.sleep_minutes, facts.firewall) == (False, 1, True)
    assert facts.allowed == {"/opt/one two/python"}
    assert facts.holder("169.254.10.2") == ("bridge0", facts.interfaces["bridge0"])
    assert facts.holder("192.0.2.77") is None
    [way] = facts.ways
    assert (way.node, way.interface, way.refusal) == ("head", "en0", "nothing listens there, or no way leads there")
    assert facts.way_mtu(way) == 1500


def test_a_host_without_these_programs_leaves_them_unknown(mac: MacHost) -> None:
    for name in ("fdesetup", "pmset", "route", "ifconfig"):
        mac.add_tool(name, "#!/bin/sh\nexit 127\n")
    mac.add_tool("socketfilterfw", "#!/bin/sh\nexit 1\n")
    facts = read()
    assert isinstance(facts.filevault, Unknown)
    assert isinstance(facts.sleep_minutes, Unknown)
    assert facts.firewall == Unknown("the probe firewall ended with status 1")
    assert isinstance(facts.ways[0].interface, Unknown)
    assert (dict(facts.interfaces), facts.way_mtu(facts.ways[0])) == ({}, None)


def test_what_is_printed_in_another_form_is_unknown_too(mac: MacHost) -> None:
    for name in ("fdesetup", "pmset", "route", "date"):
        mac.add_tool(name, "#!/bin/sh\necho Mach dich frei\n")
    facts = read()
    unknown = Unknown("the probe filevault printed 'Mach dich frei'")
    assert facts.filevault == unknown
    for fact in (facts.sleep_minutes, facts.clock_ahead_seconds, facts.ways[0].interface):
        assert isinstance(fact, Unknown)
