"""What else is done with an installed service: start, stop, restart, return to the generation before, remove. Pure but
for reading what the return leads to."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from kakeya_ops.certificates.places import authorities_path, certificate_path
from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.desired import ABOUT, IDENTITY, INVENTORY, PLIST
from kakeya_ops.deploy.errors import DeployError, NothingToReturnTo
from kakeya_ops.deploy.plan import HostPlan, Plan, make_plan
from kakeya_ops.deploy.remote_files import point, remove
from kakeya_ops.deploy.restoring import note_service
from kakeya_ops.deploy.served import read_served_host
from kakeya_ops.deploy.steps import (
    CheckCard,
    StartService,
    StopService,
    WaitHealthy,
    WriteIdentity,
    WritePlist,
    note_links,
)
from kakeya_ops.errors import InputError, KakeyaError
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.launchd import Domain, candidate_domains, parse_domain
from kakeya_ops.observe.fanout import Outcome
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, Unknown
from kakeya_ops.remote.runner import Runner

_MODEL_FIELDS = ("weights", "tokenizer", "chat_template")
"""The fields of a cache identity that are digests of the model's files."""

PlanHost = Callable[[str, HostState], HostPlan]


@dataclass(frozen=True)
class RemovePlist:
    """The property list is removed, so that the service does not come back at the next login."""

    @property
    def title(self) -> str:
        """See `Step`."""
        return "remove the property list"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        note_service(context)
        remove(context, context.places.plist)


@dataclass(frozen=True)
class RemoveInstallation:
    """Everything that deploy put there is removed; `purge` takes key and audit log too.

    It takes the model as well if that was `synced`: one that deploy only found there is not its to remove.
    """

    purge: bool
    synced: bool

    @property
    def title(self) -> str:
        """See `Step`."""
        parts = "model, fleet key and audit log" if self.synced or not self.purge else "fleet key and audit log"
        return f"remove the installation, {'with' if self.purge else 'but'} {parts}"

    def apply(self, context: HostContext) -> None:
        """See `Step`. There is no way back from here; it is the last step."""
        places = context.places
        paths = [places.current, places.previous, f"{places.root}/generations", f"{places.root}/programs", places.logs]
        paths += [places.identity]
        if self.purge:
            paths += [f"{places.root}/model.json", places.audit]
            kept = ("receipts.jsonl", "quarantine.json")  # by a head
            paths += [places.key, *(f"{places.key}.{context.host.name}.{name}" for name in kept)] if places.key else []
            paths += [str(path(places.key)) for path in (authorities_path, certificate_path) if places.key]
        if self.purge and self.synced:
            refuse_precious(context, places.model)
            paths += [places.model]
        # A service that comes back over what is half removed would be worse than none.
        context.settle()
        remove(context, *paths)


def refuse_precious(context: HostContext, folder: str) -> None:
    """Raise `DeployError` for a folder that holds more than deploy put there, such as a home folder."""
    path, places = PurePosixPath(posixpath.normpath(folder)), context.places
    within = (places.home, places.root, places.agents, *((places.key,) if places.key else ()))
    if len(path.parts) < 3 or any(PurePosixPath(other).is_relative_to(path) for other in within):
        raise DeployError(context.host.name, f"{folder} is too much to be removed as a model", hint="remove it by hand")


@dataclass(frozen=True)
class SwapGenerations:
    """The generation before becomes the current one, and the other way round."""

    current: str
    previous: str

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"keep generation {self.previous} as the current one"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        note_links(context)
        point(context, context.places.current, f"generations/{self.previous}")
        point(context, context.places.previous, f"generations/{self.current}")


@dataclass(frozen=True)
class Actions:
    """Makes the plans of one fleet's actions. `runner` is the connection to a host, by its name."""

    inventory: Inventory
    asker: Asker
    runner: Callable[[str], Runner]

    def plan(self, states: Mapping[str, Outcome[HostState]], plan_host: PlanHost) -> Plan:
        """The plan of `plan_host` (a method of this class) for every host in `states`."""
        plans: list[HostPlan] = []
        failures: dict[str, KakeyaError] = {}
        for name, state in states.items():
            try:
                if isinstance(state, KakeyaError):
                    raise state
                plans.append(plan_host(name, state))
            except KakeyaError as error:
                failures[name] = error
        return make_plan(plans, failures)

    def stop(self, name: str, state: HostState) -> HostPlan:
        """Unload the service; it comes back at the next login, or with `start`."""
        loaded = _loaded(name, state)
        return self._host(name, state, (StopService(loaded),) if loaded else ())

    def start(self, name: str, state: HostState) -> HostPlan:
        """Load the installed service where it is not loaded, and wait until it is healthy."""
        if state.running and state.health and getattr(state.health, "healthy", False):
            return self._host(name, state, ())
        return self.restart(name, state)

    def restart(self, name: str, state: HostState) -> HostPlan:
        """Unload the service and load it again: launchd reads its property list anew."""
        if state.plist is None:
            raise DeployError(name, "the service is not installed", hint=f"kakeya deploy {name}")
        loaded = _loaded(name, state)
        domain = self._domain(name, state, state.generation)
        stop = (StopService(loaded, exchanged=True),) if loaded else ()
        steps = (*stop, StartService(domain), WaitHealthy(domain))
        return replace(self._host(name, state, steps), host=self._served(name, state, state.generation))

    def rollback(self, name: str, state: HostState) -> HostPlan:
        """Return to the generation before the current one. Raises `NothingToReturnTo`."""
        current, previous = state.generation, state.previous
        if current is None or previous is None:
            raise NothingToReturnTo(f"{name} has no generation before {current or 'the first'}")
        places, runner = self._places(name, state), self.runner(name)
        folder = places.generation(previous)
        plist, document = runner.read(f"{folder}/{PLIST}"), runner.read(f"{folder}/{IDENTITY}")
        if plist is None or document is None:
            raise NothingToReturnTo(f"{name}: generation {previous} is not whole any more")
        identity = _identity(name, document)
        host = self._served(name, state, previous)
        if host.role != "cache":
            _refuse_replaced_model(name, runner, (folder, places.generation(current)), identity)
        domain = self._domain(name, state, previous)
        loaded = _loaded(name, state)
        steps: list[Step] = [WriteIdentity(document)]
        steps += [StopService(loaded, exchanged=True)] if loaded else []
        steps += [WritePlist(plist), StartService(domain), WaitHealthy(domain)]
        steps += [CheckCard(identity, self.asker, domain), SwapGenerations(current, previous)]
        return replace(self._host(name, state, tuple(steps), previous), host=host)

    def undeploy(self, purge: bool) -> PlanHost:
        """Remove the service and what deploy installed; `purge` removes model, key and audit log too."""

        def plan_host(name: str, state: HostState) -> HostPlan:
            loaded = _loaded(name, state)
            steps: list[Step] = [StopService(loaded)] if loaded else []
            steps += [RemovePlist()] if state.plist is not None else []
            installed = bool(steps) or state.generation is not None or bool(state.programs)
            steps += [RemoveInstallation(purge, self.inventory.model.sync)] if installed or purge else []
            return self._host(name, state, tuple(steps), None)

        return plan_host

    def _host(self, name: str, state: HostState, steps: tuple[Step, ...], after: str | None = "") -> HostPlan:
        host = self.inventory.host(name)
        current = state.generation if after == "" else after
        return HostPlan(host, state, self._places(name, state), current, steps)

    def _served(self, name: str, state: HostState, generation: str | None) -> ResolvedHost:
        """The host as that generation knows it: where it listens may have changed in the inventory since."""
        folder = self._places(name, state).generation(generation or "")
        data = self.runner(name).read(f"{folder}/{INVENTORY}") if generation else None
        return read_served_host(data, name) or self.inventory.host(name)

    def _places(self, name: str, state: HostState) -> Places:
        return Places.of(self.inventory, self.inventory.host(name), state.home)

    def _domain(self, name: str, state: HostState, generation: str | None) -> Domain:
        """Where the service belongs: where it is, else where the generation was installed, else where it can be."""
        if state.job is not None:
            return state.job.domain
        places = self._places(name, state)
        about = self.runner(name).read(f"{places.generation(generation)}/{ABOUT}") if generation else None
        try:
            noted = parse_domain(json.loads(about or b"")["domain"])
        except (ValueError, KeyError, TypeError, KakeyaError):
            noted = None
        if noted in state.domains and noted is not None:
            return noted
        for domain in candidate_domains(state.uid):
            if domain in state.domains:
                return domain
        raise DeployError(name, "launchd has no domain for the user", hint="log in once, by SSH or at the screen")


def _loaded(name: str, state: HostState) -> tuple[Domain, ...]:
    if isinstance(state.jobs, Unknown):
        raise DeployError(name, f"what launchd has loaded is {state.jobs}")
    return tuple(job.domain for job in state.jobs)


def _refuse_replaced_model(name: str, runner: Runner, folders: tuple[str, str], identity: CacheIdentity) -> None:
    """Raise `NothingToReturnTo` if the model of the generation before was overwritten by the current one's.

    `folders` are those of the two generations. What is not known of them is left to the check of the card.
    """
    before, now = (_model_path(runner.read(f"{folder}/{INVENTORY}")) for folder in folders)
    document = runner.read(f"{folders[1]}/{IDENTITY}")
    if before is None or before != now or document is None:
        return
    try:
        current = CacheIdentity.from_json(json.loads(document))
    except (ValueError, KeyError, TypeError):
        return
    changed = [field for field in _MODEL_FIELDS if getattr(current, field) != getattr(identity, field)]
    if changed:
        raise NothingToReturnTo(
            f"{name}: the model in {before} was replaced since the generation before was proved: its {changed[0]} "
            "would not be the one that was kept",
            hint="put the old model into a folder of its own, and deploy with model.path naming it; what a new model "
            "in a new folder replaces can be returned to",
        )


def _model_path(data: bytes | None) -> str | None:
    try:
        return None if data is None else parse_inventory(data, INVENTORY).model.path
    except InputError:
        return None


def _identity(name: str, document: bytes) -> CacheIdentity:
    try:
        return CacheIdentity.from_json(json.loads(document))
    except (ValueError, KeyError, TypeError) as error:
        raise NothingToReturnTo(f"{name}: the identity document of the generation before cannot be read") from error


__all__ = ["Actions", "PlanHost", "RemoveInstallation", "RemovePlist", "SwapGenerations", "refuse_precious"]
