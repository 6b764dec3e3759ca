"""What a host shall be: pure, from the inventory, what this machine contributes, and the facts that paths depend on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from kakeya_ops.deploy.material import Material, program_folder_id
from kakeya_ops.deploy.served import served_inventory
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.launchd import DomainChoice, ServiceValues, choose_domain, render_plist
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, Unknown
from kakeya_ops.serving.draining import DRAIN_SECONDS

INVENTORY, PLIST, IDENTITY, ABOUT = "inventory.yaml", "service.plist", "identity.json", "generation.json"
"""The files of a generation."""
_ID_DIGITS = 12


@dataclass(frozen=True)
class Desired:
    """One host as it shall be. `generation` names its content: equal ids are equal services. `program` names the
    program's folder."""

    host: ResolvedHost
    places: Places
    domain: DomainChoice
    program: str
    generation: str
    inventory: bytes
    service: ServiceValues
    plist: bytes

    @property
    def folder(self) -> str:
        """The generation's folder on the host."""
        return self.places.generation(self.generation)

    def files(self, material: Material) -> tuple[tuple[str, bytes], ...]:
        """What the folder holds, by name; with it the generation can be returned to."""
        about = {"program": self.program, "role": self.host.role, "domain": self.domain.domain.target}
        return (
            (INVENTORY, self.inventory),
            (PLIST, self.plist),
            (IDENTITY, material.identity_document),
            (ABOUT, (json.dumps(about) + "\n").encode()),
        )


def make_desired(
    inventory: Inventory, host: ResolvedHost, state: HostState, material: Material, *, forced: str | None = None
) -> Desired:
    """What `host` shall be. Raises `EnvironmentFault` when launchd there has no place for the service.

    `forced` is the reason for which the service starts although its own gate refuses.
    """
    places = Places.of(inventory, host, state.home)
    domain = _choose(host, state)
    copy = served_inventory(inventory, host)
    id = program_folder_id(material.program.id, host.python)
    program = places.program(id)
    draft = render_plist(_values(host, places, domain, _Command(program, "draft", forced)))
    content = hashlib.sha256(b"\0".join((copy, draft))).hexdigest()[:_ID_DIGITS]
    values = _values(host, places, domain, _Command(program, content, forced))
    return Desired(host, places, domain, id, content, copy, values, render_plist(values))


@dataclass(frozen=True)
class _Command:
    program: str
    generation: str
    forced: str | None

    def arguments(self, host: ResolvedHost, places: Places) -> tuple[str, ...]:
        """``kakeya serve``: a node that loads a model is told that launchd would start it again for ever."""
        program = f"{self.program}/venv/bin/kakeya"
        inventory = f"{places.generation(self.generation)}/{INVENTORY}"
        serve = (program, "--inventory", inventory, "serve", host.role, host.name)
        if host.role == "cache":
            return (*serve, "--identity", places.identity)
        return (*serve, "--supervised", *(() if self.forced is None else ("--force", self.forced)))


def _values(host: ResolvedHost, places: Places, domain: DomainChoice, command: _Command) -> ServiceValues:
    return ServiceValues(
        label=places.label,
        domain=domain.domain.kind,
        arguments=command.arguments(host, places),
        working_directory=places.root,
        stdout_path=places.log,
        stderr_path=places.log,
        drain_seconds=DRAIN_SECONDS,
        environment=dict(host.environment),
        prevent_sleep=host.prevent_sleep,
    )


def _choose(host: ResolvedHost, state: HostState) -> DomainChoice:
    console = state.console_uid
    kinds = {domain.kind for domain in state.domains}
    if isinstance(console, Unknown):
        console = 0  # nobody at the screen is the safe assumption: the user domain outlives a login
    try:
        return choose_domain(console, state.uid, host.domain, "gui" in kinds, "user" in kinds)
    except EnvironmentFault as error:
        raise EnvironmentFault(f"{host.name}: {error.message}", hint=error.hint) from error


__all__ = ["ABOUT", "IDENTITY", "INVENTORY", "PLIST", "Desired", "make_desired"]
