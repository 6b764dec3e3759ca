"""From what is and what shall be to what is to be done. Pure: nothing here asks or changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kakeya_ops.deploy.api_keys import api_keys_steps, refuse_api_keys
from kakeya_ops.deploy.certificates import WriteCertificates, certificate_fault
from kakeya_ops.deploy.context import Step
from kakeya_ops.deploy.desired import Desired, make_desired
from kakeya_ops.deploy.gate import Gate, Verdict, no_gate
from kakeya_ops.deploy.material import Material
from kakeya_ops.deploy.steps import (
    CheckCard,
    KeepGeneration,
    MakeFolders,
    StartService,
    StopService,
    WaitHealthy,
    WriteGeneration,
    WriteIdentity,
    WriteKey,
    WritePlist,
)
from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.observe.fanout import Outcome
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, KeyFile, Unknown


@dataclass(frozen=True)
class HostPlan:
    """What is to be done on one host. `reasons` say what differs; without steps nothing does.

    `after` is the generation that is current afterwards. `desired` is None for what only starts, stops or returns.
    """

    host: ResolvedHost
    state: HostState
    places: Places
    after: str | None
    steps: tuple[Step, ...]
    reasons: tuple[str, ...] = ()
    restarts: bool = True
    gate: Verdict | None = None
    desired: Desired | None = None


@dataclass(frozen=True)
class Plan:
    """What is to be done on all hosts, and which of them cannot be brought to what they shall be, and why."""

    hosts: tuple[HostPlan, ...]
    failures: Mapping[str, KakeyaError] = field(default_factory=dict)

    @property
    def pending(self) -> tuple[HostPlan, ...]:
        """The hosts on which something is to be done, in the order in which it is."""
        return tuple(host for host in self.hosts if host.steps)

    @property
    def phases(self) -> tuple[tuple[HostPlan, ...], ...]:
        """Workers and caches first, so that heads find them when they come up."""
        below = tuple(host for host in self.pending if host.host.role != "head")
        heads = tuple(host for host in self.pending if host.host.role == "head")
        return tuple(phase for phase in (below, heads) if phase)


@dataclass(frozen=True)
class Planner:
    """What plans are made from."""

    inventory: Inventory
    material: Material
    gate: Gate = no_gate
    force: str | None = None

    def plan(self, states: Mapping[str, Outcome[HostState]]) -> Plan:
        """The plan for the hosts in `states`, in the order workers, caches, heads. A host that cannot be planned is
        among its failures."""
        plans: list[HostPlan] = []
        failures: dict[str, KakeyaError] = {}
        for name, state in states.items():
            try:
                if isinstance(state, KakeyaError):
                    raise state
                plans.append(self.plan_host(self.inventory.host(name), state))
            except KakeyaError as error:
                failures[name] = error
        return make_plan(plans, failures)

    def plan_host(self, host: ResolvedHost, state: HostState) -> HostPlan:
        """What is to be done on `host`. Raises `KakeyaError` where it cannot be done."""
        verdict = self.gate(host, state)
        overruled = verdict is not None and verdict.refuses
        if verdict is not None and overruled and self.force is None:
            raise verdict.refusal(host.name)
        desired = make_desired(self.inventory, host, state, self.material, forced=self.force if overruled else None)
        difference = _Difference(desired, state, self.material)
        steps, reasons = self._steps(desired, difference)
        return HostPlan(
            host=host,
            state=state,
            places=desired.places,
            after=desired.generation,
            steps=steps,
            reasons=reasons,
            restarts=bool(difference.service),
            gate=verdict,
            desired=desired,
        )

    def _steps(self, desired: Desired, difference: _Difference) -> tuple[tuple[Step, ...], tuple[str, ...]]:
        host, places, state, material = desired.host, desired.places, difference.state, self.material
        program = material.program.steps(host, places, state)
        model = material.model.steps(host, places, state)
        files = tuple(difference.files())
        difference.service += [step.title for step in (*program, *model)]
        difference.service += [reason for reason, _ in files]
        doubtful = difference.doubts()
        reasons = (*difference.service, *doubtful) or difference.records()
        if not reasons:
            return (), ()
        domain = desired.domain.domain
        proof: tuple[Step, ...] = (WaitHealthy(domain), CheckCard(material.identity, self._asker, domain))
        keep = KeepGeneration(desired.generation)
        if not difference.service:
            return (*proof, keep), reasons
        refuse_api_keys(host, state)
        loaded = tuple(dict.fromkeys(job.domain for job in difference.jobs))
        switch: list[Step] = [StopService(loaded, exchanged=True)] if loaded else []
        switch += [WritePlist(desired.plist), StartService(domain)]
        generation = WriteGeneration(desired.generation, desired.program, desired.files(material))
        written = tuple(step for _, step in files)
        first: tuple[Step, ...] = (*api_keys_steps(host), MakeFolders(), *program, *model)
        steps = (*first, *written, generation, *switch, *proof, keep)
        return (*steps, *material.model.after(model)), reasons

    @property
    def _asker(self) -> Asker:
        return Asker(self.material.key, self.inventory.fleet.tenant)


def make_plan(hosts: Iterable[HostPlan], failures: Mapping[str, KakeyaError]) -> Plan:
    """The plans of hosts in the order in which they are applied: workers, caches, heads."""
    order = {"worker": 0, "cache": 1, "head": 2}
    return Plan(tuple(sorted(hosts, key=lambda plan: order[plan.host.role])), failures)


class _Difference:
    """What of one host is not as it shall be. `service` are the reasons for which its service is started anew."""

    def __init__(self, desired: Desired, state: HostState, material: Material) -> None:
        self.desired = desired
        self.state = state
        self.material = material
        self.jobs = () if isinstance(state.jobs, Unknown) else state.jobs
        checks: Sequence[Callable[[], str | None]] = (self._plist, self._loaded, self._health, self._card)
        self.service = [reason for check in checks if (reason := check())]

    def files(self) -> Iterable[tuple[str, Step]]:
        """The files beside the service that differ, and what writes them."""
        key, found = self.material.key, self.state.key
        if key is not None and found != KeyFile(0o600, self.material.key_digest or ""):
            yield _key_reason(found, self.material.key_digest), WriteKey(key)
        authority = self.material.authority
        if authority is not None and (fault := certificate_fault(self.desired.host, self.state, authority)):
            yield fault, WriteCertificates(authority, authority.pem)
        if self.state.identity != self.material.identity_document:
            what = "is missing" if self.state.identity is None else "is not the planned one"
            yield f"the identity document {what}", WriteIdentity(self.material.identity_document)

    def doubts(self) -> tuple[str, ...]:
        """What could not be found out, and is therefore proved again without a restart."""
        doubts = []
        if isinstance(self.state.jobs, Unknown):
            doubts.append(f"what launchd has loaded is {self.state.jobs}")
        if isinstance(self.state.health, Unknown):
            doubts.append(f"the node's health is {self.state.health}")
        elif isinstance(self.state.card, Unknown) and self.desired.host.endpoints and self.state.health:
            doubts.append(f"the node's card is {self.state.card}")
        return tuple(doubts)

    def records(self) -> tuple[str, ...]:
        """What deploy has noted on the host that does not say what is so."""
        current = self.state.generation
        return () if current == self.desired.generation else (f"generation {current} is noted as the current one",)

    def _plist(self) -> str | None:
        if self.state.plist is None:
            return "the service is not installed"
        return None if self.state.plist == self.desired.plist else "the property list differs"

    def _loaded(self) -> str | None:
        domain = self.desired.domain.domain
        if isinstance(self.state.jobs, Unknown):
            return None
        if not self.jobs:
            return None if self.state.plist is None else "the service is not loaded"
        if [job.domain for job in self.jobs] != [domain]:
            loaded = " and ".join(job.domain.target for job in self.jobs)
            return f"the service is loaded in {loaded}, and belongs in {domain.target}"
        same = self.jobs[0].service.loaded_with(self.desired.service.program_arguments)
        return None if same or self.state.plist != self.desired.plist else "launchd runs it with other arguments"

    def _health(self) -> str | None:
        health = self.state.health
        if not self.jobs or isinstance(health, Unknown):
            return None
        if health is None:
            return "the service does not answer"
        return None if health.healthy else f"the node is not healthy: {health.reason}"

    def _card(self) -> str | None:
        card = self.state.card
        if isinstance(card, Unknown) or card.identity == self.material.identity.digest:
            return None
        return (
            f"the node's cache identity is {str(card.identity)[:12]}, planned is {self.material.identity.digest[:12]}"
        )


def _key_reason(found: object, digest: str | None) -> str:
    if isinstance(found, KeyFile):
        return f"the fleet key has mode {found.mode:04o}" if found.digest == digest else "the fleet key differs"
    return "the fleet key is missing" if found is None else f"the fleet key is {found}"


__all__ = ["HostPlan", "Plan", "Planner", "make_plan"]
