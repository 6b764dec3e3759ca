"""Reads every host at once and looks at what was read: nothing is changed anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kakeya_ops.deploy.hosts import PARALLEL, Hosts
from kakeya_ops.deploy.memory_gate import assess_state
from kakeya_ops.doctor.facts import HostFacts, read_facts
from kakeya_ops.doctor.finding import Finding, Report
from kakeya_ops.doctor.fleet import check_fleet
from kakeya_ops.doctor.installed import check_installed
from kakeya_ops.doctor.machine import check_machine
from kakeya_ops.doctor.network import check_network
from kakeya_ops.doctor.patient import Expected, Patient
from kakeya_ops.errors import HostKeyRejected, KakeyaError
from kakeya_ops.inventory.sections import Endpoint
from kakeya_ops.memory.assessment import Model
from kakeya_ops.observe.fanout import Outcome, run_on
from kakeya_ops.observe.http import CURL, SECONDS, read_reply, signed_request
from kakeya_ops.observe.node import usable_endpoints
from kakeya_ops.observe.state import Fact, HostState, Unknown
from kakeya_ops.peer.client import CARDS_PATH
from kakeya_ops.wire.cards import Card, CardsExchange


@dataclass(frozen=True)
class Examination:
    """What hosts are compared with, and the model's shape for the memory verdict, None where there is none."""

    hosts: Hosts
    expected: Expected
    shape: Model | None

    def run(self, names: Iterable[str]) -> Report:
        """Look at the hosts called `names`."""
        names = tuple(names)
        states = self.hosts.observe(names)
        read = [name for name, state in states.items() if not isinstance(state, KakeyaError)]
        found = run_on(read, self._read, PARALLEL)
        patients = {name: self._patient(name, states[name], found[name]) for name in read}
        return Report.of(itertools.chain(self._reached(states), _look(patients)), names)

    def _read(self, name: str) -> tuple[HostFacts, tuple[Card, ...]]:
        return read_facts(self.hosts.runner(name), self._targets(name)), self._known(name)

    def _targets(self, name: str) -> list[tuple[str, Endpoint]]:
        """Every endpoint of every other host, once."""
        inventory = self.hosts.inventory
        return [
            (other, endpoint) for other, host in inventory.hosts.items() if other != name for endpoint in host.endpoints
        ]

    def _known(self, name: str) -> tuple[Card, ...]:
        """The cards that the node on the host holds; none where it does not answer."""
        asker, body = self.hosts.asker, CardsExchange(cards=()).encode()
        for endpoint in usable_endpoints(self.hosts.inventory.host(name)):
            request = signed_request(asker.signer, asker.key, name, endpoint, (CARDS_PATH, body))
            try:
                result = self.hosts.runner(name).run(
                    CURL, input=request.config(self.hosts.places(name).key), timeout_seconds=3 * SECONDS
                )
                return read_reply(request, CardsExchange, result.status, result.stdout).cards
            except KakeyaError:
                continue
        return ()

    def _patient(
        self, name: str, state: Outcome[HostState], found: Outcome[tuple[HostFacts, tuple[Card, ...]]]
    ) -> Patient:
        assert not isinstance(state, KakeyaError)
        host = self.hosts.inventory.host(name)
        facts: Fact[HostFacts] = Unknown(found.message) if isinstance(found, KakeyaError) else found[0]
        needs_shape = self.shape is None and host.role != "cache"
        return Patient(
            inventory=self.hosts.inventory,
            host=host,
            expected=self.expected,
            state=state,
            facts=facts,
            notes=self.hosts.runner(name).notes,
            known=() if isinstance(found, KakeyaError) else found[1],
            memory=None if needs_shape else assess_state(self.hosts.inventory, host, state, self.shape),
        )

    def _reached(self, states: Mapping[str, Outcome[HostState]]) -> Iterator[Finding]:
        """Whether SSH gets to each host."""
        for name, state in states.items():
            if isinstance(state, HostKeyRejected):
                yield _refused(Finding("host-key", name, "failed", "", state.hint), state)
                yield Finding("ssh", name, "unknown", "not tried before its host key is settled")
            elif isinstance(state, KakeyaError):
                yield _refused(Finding("ssh", name, "failed", "", state.hint), state)
            else:
                notes = "; ".join(self.hosts.runner(name).notes)
                yield Finding("ssh", name, "ok", f"lets {state.user} in{f': {notes}' if notes else ''}")
                yield Finding("host-key", name, "ok", "known")


def _refused(finding: Finding, error: KakeyaError) -> Finding:
    found = error.message.removeprefix(f"{finding.host}: ")
    fix = error.hint or f"ssh -v {finding.host} shows how far it gets"
    return Finding(finding.code, finding.host, finding.verdict, found, fix)


def _look(patients: Mapping[str, Patient]) -> Iterator[Finding]:
    for patient in patients.values():
        yield from check_machine(patient)
        yield from check_installed(patient)
        yield from check_network(patient, patients)
    yield from check_fleet(patients)


__all__ = ["Examination"]
