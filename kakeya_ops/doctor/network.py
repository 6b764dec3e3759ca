"""The ways between hosts: what they carry, where packets leave, what answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kakeya_ops.doctor.facts import HostFacts, Way
from kakeya_ops.doctor.finding import Finding, Verdict
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.state import Unknown

LOCAL_NETWORK_HINT = (
    "macOS 15 and later keep LaunchAgents out of the local network until the user allows it: at the screen, System "
    "Settings > Privacy & Security > Local Network, allow python, then kakeya restart {host}"
)
_NO_ROUTE = ("No route to host", "errno 65")


def check_network(patient: Patient, others: Mapping[str, Patient]) -> Iterator[Finding]:
    """Everything about the ways from and to the host of `patient`; `others` are the hosts that could be read."""
    yield from (_link(patient, endpoint) for endpoint in patient.host.endpoints)
    if patient.is_mac:
        yield patient.about("firewall", patient.fact(lambda facts: facts.firewall), lambda on: _firewall(patient, on))
    if not isinstance(patient.facts, Unknown):
        yield from _routes(patient, patient.facts)
        yield from _mtus(patient, patient.facts, others)
        yield from (_port(patient, way, others) for way in patient.facts.ways)
    yield from _process(patient, others)


def _link(patient: Patient, endpoint: Endpoint) -> Finding:
    where = f"{endpoint.network} {endpoint.address}:{endpoint.port}"
    if is_loopback(endpoint.address):
        return patient.say("link", "ok", f"{where}: in clear, over loopback")
    if endpoint.trusted:
        return patient.say("link", "ok", f"{where}: in clear, marked trusted")
    return patient.say("link", "ok", f"{where}: only encrypted, it is not marked trusted")


def _firewall(patient: Patient, on: bool) -> Finding:
    if not on:
        return patient.say("firewall", "ok", "off")
    python = _service_python(patient)
    if python and not isinstance(patient.facts, Unknown) and python in patient.facts.allowed:
        return patient.say("firewall", "ok", f"on, and lets others connect to {python}")
    tool = "/usr/libexec/ApplicationFirewall/socketfilterfw"
    path = python or "PYTHON"
    return patient.say(
        "firewall",
        "warning",
        f"on, and {python or 'the Python of the service'} is not among the programs that it lets others connect to",
        f"ssh -t {patient.host.ssh_host} sudo {tool} --add {path} --unblockapp {path}",
    )


def _service_python(patient: Patient) -> str | None:
    """The interpreter that the running service was started with; it is what the firewall goes by."""
    job = patient.state.job
    program = (
        next((word for word in job.service.program_arguments or () if "/programs/" in word), None) if job else None
    )
    return program.rpartition("/")[0] + "/python" if program else None


def _routes(patient: Patient, facts: HostFacts) -> Iterator[Finding]:
    for way in facts.ways:
        if way.endpoint.network.lower() != "thunderbolt" or not patient.is_mac:
            continue
        where = f"to {way.node} at {way.endpoint.address}"
        if isinstance(way.interface, Unknown):
            yield patient.say("route", "unknown", f"{where}: {way.interface.reason}")
        elif way.interface.startswith("bridge"):
            yield patient.say("route", "ok", f"{where} by {way.interface}")
        else:
            yield patient.say(
                "route",
                "failed",
                f"{where} packets leave by {way.interface}, not by the Thunderbolt bridge",
                "give the bridge of each Mac an address of a subnet of its own (System Settings > Network > "
                "Thunderbolt Bridge > Details > TCP/IP: manually), and use these in the inventory",
            )


def _mtus(patient: Patient, facts: HostFacts, others: Mapping[str, Patient]) -> Iterator[Finding]:
    for way in facts.ways:
        other = others.get(way.node)
        ours = facts.way_mtu(way)
        if ours is None or other is None or isinstance(other.facts, Unknown) or is_loopback(way.endpoint.address):
            continue
        held = other.facts.holder(way.endpoint.address)
        if held is None:
            continue
        name, theirs = held[0], held[1].mtu_bytes
        words = f"{ours} bytes on {way.interface} here, {theirs} on {name} of {way.node}"
        fix = f"the same on both: networksetup -setMTU {name} {min(ours, theirs)}"
        yield patient.say("mtu", *_equal(words, fix) if ours == theirs else ("failed", words, fix))


def _equal(words: str, fix: str) -> tuple[Verdict, str, str | None]:
    return "ok", words, None


def _port(patient: Patient, way: Way, others: Mapping[str, Patient]) -> Finding:
    where = f"{way.node} at {way.endpoint.address}:{way.endpoint.port} ({way.endpoint.network})"
    if way.refusal is None:
        return patient.say("port", "ok", f"{where} answers")
    other = others.get(way.node)
    if other is not None and not other.state.running:
        return patient.say("port", "unknown", f"{where}: no service runs there", f"kakeya deploy {way.node}")
    return patient.say(
        "port",
        "failed",
        f"{where}: {way.refusal}",
        f"is the address in the inventory that of {way.node} now? kakeya doctor {way.node}; "
        f"ssh {patient.host.ssh_host} ping -c 3 {way.endpoint.address}",
    )


def _process(patient: Patient, others: Mapping[str, Patient]) -> Iterator[Finding]:
    """What the node's own process says of the others."""
    if not patient.state.running:
        return
    if patient.card is None:
        yield patient.say("process", "unknown", "the node does not say whom it reaches", f"kakeya logs {patient.name}")
        return
    for link in patient.card.links:
        words = f"{link.node} by {link.network}"
        if link.error is None:
            yield patient.say("process", "ok", f"the service itself reaches {words}")
        elif link.node in others and not others[link.node].state.running:
            yield patient.say("process", "unknown", f"{words}: no service runs there", f"kakeya deploy {link.node}")
        else:
            yield patient.say(
                "process",
                "failed",
                f"the service itself does not reach {words}: {link.error}",
                _advise(patient, link.error),
            )


def _advise(patient: Patient, error: str) -> str:
    if patient.is_mac and any(sign in error for sign in _NO_ROUTE):
        return LOCAL_NETWORK_HINT.format(host=patient.name)
    return "see the findings port, firewall and route of both hosts"


__all__ = ["LOCAL_NETWORK_HINT", "check_network"]
