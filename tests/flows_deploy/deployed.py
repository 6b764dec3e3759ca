"""A fleet to be deployed: simulated Macs behind real SSH servers, an inventory for them, and what deploy needs."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.deploy.apply import Application, ApplySettings, HostResult
from kakeya_ops.deploy.certificates import read_fleet_authority
from kakeya_ops.deploy.context import HostContext, Step, Timing
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.material import Material, plan_identity, read_key
from kakeya_ops.deploy.plan import Plan, Planner
from kakeya_ops.inventory import Inventory, ResolvedHost, load_inventory
from kakeya_ops.inventory.sections import CacheSection
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.observe import HostState
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.connect import connect
from kakeya_ops.remote.runner import Runner
from kakeya_ops.secret import write_fleet_key
from mac.host import MacHost
from ports import choose_ports
from sshd import Knobs, SshServer

ROOT = Path(__file__).parents[2]
QUICK = Timing(healthy=120.0, poll=0.1, gone=30.0, retry=0.1, retries=40, pid=10.0)
"""Deadlines as in life, pauses for a simulator whose seconds are short."""


@dataclass(frozen=True)
class InstallCheckout:
    """A venv-like folder whose `kakeya` is this checkout's, so that nothing is fetched and nothing takes long."""

    id: str

    @property
    def title(self) -> str:
        return f"install the program {self.id}"

    def apply(self, context: HostContext) -> None:
        folder = context.places.program(self.id)
        context.runner.run(["/bin/mkdir", "-p", f"{folder}/venv/bin"], check=True)
        places = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
        script = f'#!/bin/sh\nPYTHONPATH={places} exec {sys.executable} -m kakeya_ops.cli.main "$@"\n'
        context.runner.write(f"{folder}/venv/bin/kakeya", script.encode(), 0o755)
        context.runner.run(["/bin/ln", "-sf", sys.executable, f"{folder}/venv/bin/python"], check=True)
        context.runner.write(f"{folder}/complete", b"", 0o644)


@dataclass(frozen=True)
class CheckoutProgram:
    """This checkout as the program."""

    id: str = "checkout"

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        return () if self.id in state.programs else (InstallCheckout(self.id),)


@dataclass(frozen=True)
class SharedModel:
    """A model that every host can read where it is."""

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        return ()

    def after(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        return ()


@dataclass
class Machine:
    """A simulated Mac, the SSH server in front of it, and the client's configuration that leads there."""

    mac: MacHost
    server: SshServer
    config: Path


@contextlib.contextmanager
def machine(folder: Path, name: str, **knobs: Any) -> Iterator[Machine]:
    """A Mac that can be logged in to as `name`."""
    with (
        MacHost(folder / f"{name}-mac", **knobs) as mac,
        SshServer(folder / f"{name}-ssh", Knobs(environment=mac.environment)) as server,
    ):
        yield Machine(mac, server, server.write_config(name))


@dataclass
class Fleet:
    """An inventory whose hosts are `machines`; the model at `model` can be read from every host."""

    folder: Path
    model: Path
    machines: Mapping[str, Machine]
    roles: Mapping[str, str]
    program: Any = field(default_factory=CheckoutProgram)
    notes: list[str] = field(default_factory=list)
    at_step: Callable[[str], None] = lambda title: None
    at_note: Callable[[str], None] = lambda text: None
    at_transfer: Callable[[int], None] = lambda done_bytes: None
    model_source: Any = field(default_factory=SharedModel)
    _identity: tuple[CacheSection, CacheIdentity] | None = None

    def __post_init__(self) -> None:
        write_fleet_key(self.folder / "operator/.kakeya/fleet.key")
        self.api_port, *ports = choose_ports(1 + len(self.roles))
        self.ports = dict(zip(self.roles, ports, strict=True))
        self.document: dict[str, Any] = {
            "fleet": {"name": "flows", "tenant": "flows"},
            "model": {"id": "tiny", "path": str(self.model)},
            "cache": {"pool_gb": 0.25},
            "prefill": {"min_tokens": 64, "policy": "prefer_remote"},
            "hosts": {name: self._host(name, role) for name, role in self.roles.items()},
        }
        self._write()

    @property
    def inventory(self) -> Inventory:
        return load_inventory(self.path)

    @property
    def path(self) -> Path:
        return self.folder / "inventory.yaml"

    def change(self, section: str, **values: Any) -> None:
        """Change a section of the inventory."""
        self.document.setdefault(section, {}).update(values)
        self._write()

    def change_host(self, name: str, **values: Any) -> None:
        """Change a host of the inventory."""
        self.document["hosts"][name].update(values)
        self._write()

    @contextlib.contextmanager
    def hosts(self) -> Iterator[Hosts]:
        """Connections to the fleet's hosts."""
        with Hosts(self.inventory, self._open, read_key(self.inventory)) as hosts:
            yield hosts

    def material(self) -> Material:
        inventory = self.inventory
        if self._identity is None or self._identity[0] != inventory.cache:
            self._identity = inventory.cache, plan_identity(inventory)
        authority = read_fleet_authority(inventory)
        return Material(read_key(inventory), self._identity[1], self.program, self.model_source, authority)

    def plan(self, *names: str) -> Plan:
        """What deploy would do."""
        with self.hosts() as hosts:
            return Planner(self.inventory, self.material()).plan(hosts.observe(names or self.roles))

    def deploy(self, *names: str, **settings: Any) -> dict[str, HostResult]:
        """What deploy does, without the questions."""
        with self.hosts() as hosts:
            plan = Planner(self.inventory, self.material()).plan(hosts.observe(names or self.roles))
            return self.apply(hosts, plan, **settings)

    def apply(self, hosts: Hosts, plan: Plan, **settings: Any) -> dict[str, HostResult]:
        chosen = ApplySettings(**{"timing": QUICK, "key": hosts.asker.key, **settings})
        self.application = Application(hosts.runner, self, chosen)
        return {result.host: result for result in self.application.run(plan)}

    def places(self, name: str) -> Places:
        return Places.of(self.inventory, self.inventory.host(name), str(self.machines[name].mac.home))

    def _open(self, host: ResolvedHost) -> Runner:
        return connect(host, config_file=self.machines[host.name].config)

    @contextlib.contextmanager
    def step(self, host: str, title: str) -> Iterator[None]:
        self.notes.append(f"{host}: {title}")
        self.at_step(title)
        yield

    def note(self, host: str, text: str) -> None:
        self.notes.append(f"{host}: {text}")
        self.at_note(text)

    @contextlib.contextmanager
    def transfer(self, host: str, what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
        yield lambda done_bytes: self.at_transfer(done_bytes)

    def _host(self, name: str, role: str) -> dict[str, Any]:
        endpoint = {"network": "loopback", "address": LOOPBACK, "port": self.ports[name], "trusted": True}
        api = {"api": {"bind": LOOPBACK, "port": self.api_port}} if role == "head" else {}
        return {"role": role, "endpoints": [endpoint], **api}

    def _write(self) -> None:
        self.path.write_text(yaml.safe_dump(self.document))
