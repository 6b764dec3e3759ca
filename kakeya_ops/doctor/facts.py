"""What only the doctor wants to know of a host, read by one script and parsed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kakeya_ops.doctor.script import PORT_SECONDS, arguments, make_script
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.observe.http import base_url
from kakeya_ops.observe.interfaces import Interface, parse_interfaces
from kakeya_ops.observe.state import Fact, Unknown
from kakeya_ops.probes import MISSING, parse_findings
from kakeya_ops.probes import Finding as Probed
from kakeya_ops.remote.runner import Runner

T = TypeVar("T")

_ALLOWED = re.compile(r"^\s*\d+ *:\s*(/\S.*?)\s*\n\s*\( *Allow", re.MULTILINE)


@dataclass(frozen=True)
class Way:
    """How the host gets to an endpoint of another node: `interface` is the one that its packets leave by.

    `refusal` says why no server answered a program of the host's shell; None when one did.
    """

    node: str
    endpoint: Endpoint
    interface: Fact[str]
    refusal: str | None


@dataclass(frozen=True)
class HostFacts:
    """`clock_ahead_seconds` is against this machine's clock, give or take `clock_doubt_seconds`.

    `sleep_minutes` is when the Mac falls asleep when nobody uses it, 0 for never. `allowed` are the programs that the
    application firewall lets others connect to.
    """

    clock_ahead_seconds: Fact[float]
    clock_doubt_seconds: float
    filevault: Fact[bool]
    sleep_minutes: Fact[int]
    kept_awake: bool
    firewall: Fact[bool]
    allowed: frozenset[str]
    interfaces: Mapping[str, Interface]
    ways: tuple[Way, ...]

    def way_mtu(self, way: Way) -> int | None:
        """The MTU of the interface by which packets leave for `way`, None where it is not known."""
        interface = self.interfaces.get(way.interface) if isinstance(way.interface, str) else None
        return interface.mtu_bytes if interface else None

    def holder(self, address: str) -> tuple[str, Interface] | None:
        """The interface with `address`, and its name; None where no interface has it."""
        return next(((name, one) for name, one in self.interfaces.items() if address in one.addresses), None)


def read_facts(runner: Runner, targets: Sequence[tuple[str, Endpoint]]) -> HostFacts:
    """The facts of the host behind `runner`, and its ways to `targets`, each a node and one of its endpoints.

    Raises `RemoteError` when the host cannot be asked.
    """
    script = make_script()
    urls = [(end.address, f"{base_url(end.address, end.port)}/healthz") for _, end in targets]
    began = time.time()
    result = runner.run(
        script.argv(arguments(urls)), input=script.text, timeout_seconds=30 + 2 * PORT_SECONDS * len(targets)
    )
    ended = time.time()
    probed = parse_findings(result.stdout, script.nonce)
    return _read(probed, targets, (began, ended))


def _read(
    probed: Mapping[str, Probed], targets: Sequence[tuple[str, Endpoint]], asked: tuple[float, float]
) -> HostFacts:
    began, ended = asked
    awake = probed.get("assertions", MISSING).text
    return HostFacts(
        # The clock is the first thing that the script reads, so it was read nearer to the beginning.
        clock_ahead_seconds=_fact(probed, "clock", lambda text: int(text) + 0.5 - began),
        clock_doubt_seconds=0.5 + (ended - began),
        filevault=_fact(probed, "filevault", _is_on),
        sleep_minutes=_fact(probed, "power", _sleep_minutes),
        kept_awake=bool(re.search(r"PreventUserIdleSystemSleep\s+1", awake)),
        firewall=_fact(probed, "firewall", lambda text: "State = 0" not in text),
        allowed=frozenset(_ALLOWED.findall(probed.get("firewall_apps", MISSING).text)),
        interfaces=parse_interfaces(probed.get("interfaces", MISSING).text),
        ways=tuple(_way(probed, number, *target) for number, target in enumerate(targets)),
    )


def _fact(probed: Mapping[str, Probed], name: str, parse: Callable[[str], T]) -> Fact[T]:
    finding = probed.get(name, MISSING)
    if finding.status == 127 or finding.status == -1:
        return Unknown("the host has no program to tell it")
    if finding.status != 0:
        return Unknown(f"the probe {name} ended with status {finding.status}")
    try:
        return parse(finding.text)
    except ValueError:
        return Unknown(f"the probe {name} printed {finding.text[:60]!r}")


def _is_on(text: str) -> bool:
    if "FileVault is" not in text:
        raise ValueError(text)
    return "FileVault is On" in text


def _sleep_minutes(text: str) -> int:
    match = re.search(r"^\s*sleep\s+(\d+)", text, re.MULTILINE)
    if match is None:
        raise ValueError(text)
    return int(match[1])


def _way(probed: Mapping[str, Probed], number: int, node: str, endpoint: Endpoint) -> Way:
    interface = _fact(probed, f"route_{number}", _leaving)
    return Way(node, endpoint, interface, _refusal(probed.get(f"port_{number}", MISSING).status))


def _leaving(text: str) -> str:
    match = re.search(r"^\s*interface:\s*(\S+)", text, re.MULTILINE)
    if match is None:
        raise ValueError(text)
    return match[1]


def _refusal(status: int) -> str | None:
    """What curl's exit status says; a server that answers in another language has answered."""
    if status in (0, 1, 35, 52, 56):
        return None
    return _CURL_REASONS.get(status, f"curl ended with status {status}")


_CURL_REASONS = {
    -1: "the host did not end its report",
    6: "the name cannot be resolved",
    7: "nothing listens there, or no way leads there",
    28: f"no answer within {PORT_SECONDS} s",
    127: "the host has no curl",
}


__all__ = ["HostFacts", "Way", "read_facts"]
