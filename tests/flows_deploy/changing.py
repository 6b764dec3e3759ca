"""One deployed cache peer that is changed again and again, what may go wrong meanwhile, and what must be so again.

A cache peer, because it starts faster than anything with a model.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from flows_deploy.deployed import QUICK, CheckoutProgram, Fleet, InstallCheckout
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe import HostState
from kakeya_ops.observe.places import Places
from mac.state import MacState

NAME = "vault"
FEW_TRIES = dataclasses.replace(QUICK, retries=3)
"""What comes to pass is given the time that it may take; only what never does is not waited for so long."""
_QUEUES = itertools.count(101)
_KNOBS = (
    "bootout_blocks",
    "bootout_disables",
    "bootout_linger_seconds",
    "bootstrap_ok_but_absent",
    "bootstrap_ok_but_not_started",
    "disabled_bootstrap_status",
    "eio_next_bootouts",
    "eio_next_bootstraps",
    "eio_next_kickstarts",
    "gui_session",
    "hang",
    "home_on_volume",
    "latency_seconds",
    "no_gui_bootstrap_status",
    "profile",
    "respawn_during_bootout",
    "spawn_fail",
    "user_domain",
)
QUIET: dict[str, Any] = {name: getattr(MacState, name) for name in _KNOBS}
"""A Mac on which nothing goes wrong."""


def want_another(fleet: Fleet) -> None:
    """Let the inventory want a generation that there never was."""
    fleet.change_host(NAME, queue=next(_QUEUES))


def calm(fleet: Fleet) -> None:
    """End every fault."""
    fleet.at_step = fleet.at_note = lambda text: None
    if not isinstance(fleet.program, Idle):
        fleet.program = CheckoutProgram()
    fleet.machines[NAME].mac.set(**QUIET)


def trouble(fleet: Fleet, step: str, **knobs: Any) -> None:
    """From `step` on the Mac is as `knobs` say, until what was done is being taken back."""
    mac = fleet.machines[NAME].mac

    def begin(title: str) -> None:
        if title.startswith(step):
            mac.set(**knobs)

    def end(text: str) -> None:
        if text.startswith("taking back"):
            mac.set(**QUIET)

    fleet.at_step, fleet.at_note = begin, end


@dataclass
class Before:
    """What must be so again."""

    fleet: Fleet

    def __post_init__(self) -> None:
        places = self.places = self.fleet.places(NAME)
        self.mac = self.fleet.machines[NAME].mac
        self.plist = Path(places.plist).read_bytes()
        self.current = Path(places.current).readlink()
        self.generations = set(Path(places.root, "generations").iterdir())
        self.pid = self.mac.wait_until_running(places.label).pid

    def is_back(self, result: HostResult, *, same_process: bool = False) -> None:
        """The old generation runs and is what the files say, and nothing of another one is left."""
        assert result.verdict == "restored", result
        self.is_as_it_was(same_process=same_process)
        entry = json.loads(Path(self.places.audit).read_text().splitlines()[-1])
        assert entry["outcome"] == "restored"

    def is_as_it_was(self, *, same_process: bool) -> None:
        """What `is_back` says of the host."""
        assert Path(self.places.plist).read_bytes() == self.plist
        assert Path(self.places.plist).stat().st_mode & 0o777 == 0o644
        assert Path(self.places.current).readlink() == self.current
        assert set(Path(self.places.root, "generations").iterdir()) == self.generations
        assert not [path for path in Path(self.places.root).rglob("*.part*")]
        assert not list(Path(self.places.root).glob("guard-*"))
        assert not Path(self.places.lock).exists()
        serves(self.fleet, str(self.current).rpartition("/")[2])
        assert (self.mac.wait_until_running(self.places.label).pid == self.pid) is same_process


def serves(fleet: Fleet, generation: str | None) -> None:
    """The job that launchd has is of `generation`, and its own process answers at the endpoint, not a forgotten one."""
    mac, label, port = fleet.machines[NAME].mac, fleet.places(NAME).label, fleet.ports[NAME]
    job = mac.wait_until_running(label)
    assert f"/generations/{generation}/" in " ".join(job.arguments)
    assert job.pid is not None
    assert mac.leftovers() == []
    if isinstance(fleet.program, Idle):
        return

    def listens() -> bool:
        found = psutil.Process(job.pid).net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)

    mac.wait_for(listens, "the job's process to listen")
    with socket.create_connection(("127.0.0.1", port), timeout=10):
        pass


@dataclass(frozen=True)
class InstallScript:
    """A program that is `script`; in it, GOOD is what the real one would be, but with `extra` arguments."""

    id: str
    script: str
    extra: str

    title = "install a program that does not do what it should"

    def apply(self, context: HostContext) -> None:
        InstallCheckout(self.id).apply(context)
        kakeya = f"{context.places.program(self.id)}/venv/bin/kakeya"
        good = (context.runner.read(kakeya) or b"").decode().replace('"$@"', f'"$@" {self.extra}')
        context.runner.write(kakeya, self.script.replace("GOOD", good).encode(), 0o755)


@dataclass(frozen=True)
class ScriptProgram:
    """A program source for `InstallScript`."""

    id: str
    script: str = "GOOD"
    extra: str = ""

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        return () if self.id in state.programs else (InstallScript(self.id, self.script, self.extra),)


@dataclass(frozen=True)
class Idle(ScriptProgram):
    """A program that starts at once and does nothing: the node is served by the tests' process in its stead."""

    id: str = "idle"
    script: str = "#!/bin/sh\nexec /bin/sleep 1000\n"


__all__ = ["FEW_TRIES", "NAME", "QUIET", "Before", "Idle", "ScriptProgram", "calm", "serves", "trouble", "want_another"]
