"""Somebody who does what a runbook says, word for word: types its commands, and edits the inventory as it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from typer.testing import CliRunner

from flows.heads import wait_until
from flows_deploy.deployed import Fleet
from kakeya_ops.cli.main import app
from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.remote.process import run_process
from kakeya_ops.runbook import Command, Edit, read_steps, render_page
from kakeya_ops.verify.head_client import HeadClient

CHANGING = frozenset(["deploy", "key", "restart", "rollback", "start"])
"""Commands after which nodes have to meet again, which may take them seconds on a busy machine."""
MOST_LOOKS = 5
"""How often ``status`` is asked for until it says what the page states: on a busy machine a node may answer it late."""
REQUEST_ID = "REQUEST_ID"
"""What stands in a command for the id of a request, which whoever reads the page has from somebody else."""

Act = Callable[[Fleet], None]


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, as a person reads a block of a few keys."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


@dataclass(frozen=True)
class Printed:
    """What came of a command."""

    exit_code: int
    output: str


@dataclass
class Reader:
    """`acts` is what the prose of a page asks for before the command of a number, counted from 0."""

    fleet: Fleet
    acts: Mapping[tuple[str, int], Act] = field(default_factory=dict)

    def follow(self, page: str, host: str | None = None) -> None:
        """Do everything on `page`."""
        number = 0
        for step in read_steps(render_page(page, self.fleet.inventory, host, self.fleet.path)):
            if isinstance(step, Edit):
                self.edit(step)
                continue
            self.acts.get((page, number), lambda fleet: None)(self.fleet)
            self.type(step)
            number += 1

    def edit(self, change: Edit) -> None:
        """Change the inventory as a block of YAML shows."""
        self.fleet.document = merge(self.fleet.document, yaml.safe_load(change.text))
        self.stay_on_loopback()

    def type(self, command: Command) -> None:
        """Type a command, and hold the page to what it states of it."""
        result = self._type(command)
        for _ in range(MOST_LOOKS - 1 if "status" in command.words else 0):
            if not _faults(command, result):
                break
            result = self._type(command)
        assert not _faults(command, result), result.output
        if "init" in command.words:
            self.fleet.document = yaml.safe_load(self.fleet.path.read_text())
            self.stay_on_loopback()
        if CHANGING & set(command.words):
            self.meet()

    def _type(self, command: Command) -> Printed:
        words = [self._last_request() if word == REQUEST_ID else word for word in command.words]
        return self.run(*words)

    def run(self, *words: str) -> Printed:
        """Do what a shell would."""
        assert words[0] in ("kakeya", "ssh")
        if words[0] == "ssh":
            done = run_process(list(words), timeout_seconds=60)
            return Printed(done.status, (done.stdout + done.stderr).decode())
        result = CliRunner().invoke(app, list(words[1:]), env={"COLUMNS": "200"})
        return Printed(result.exit_code, result.output)

    def stay_on_loopback(self) -> None:
        """Every host of the inventory is one of the simulated Macs, at a port that is free."""
        for name, host in self.fleet.document["hosts"].items():
            endpoint = {"network": "loopback", "address": LOOPBACK, "port": self.fleet.ports[name], "trusted": True}
            host.update(ssh={"host": name}, endpoints=[endpoint])
            if host["role"] == "head":
                host["api"]["port"] = self.fleet.api_port
        self.fleet.change("hosts")

    def meet(self) -> None:
        """Wait until the head would ask every node that runs."""
        running = {name for name in self.fleet.document["hosts"] if self.runs(name)}
        if "head" not in running:
            return
        with HeadClient(f"http://{LOOPBACK}:{self.fleet.api_port}") as client:
            for name in running - {"head"}:
                wait_until(lambda name=name: _asks(client, name), f"meeting {name}")  # type: ignore[misc]

    def runs(self, name: str) -> bool:
        """Whether launchd has a process of the host called `name`."""
        job = self.fleet.machines[name].mac.job(self.fleet.places(name).label)
        return job is not None and job.pid is not None

    def _last_request(self) -> str:
        with HeadClient(f"http://{LOOPBACK}:{self.fleet.api_port}") as client:
            body = json.dumps({"prompt": "far away " * 60, "max_tokens": 2, "temperature": 0, "logprobs": 1})
            return client.complete(body.encode(), {}).request_id


def _faults(command: Command, result: Printed) -> list[str]:
    """What the page states and was not so."""
    faults = [] if result.exit_code in command.codes else [f"{command} ended with {result.exit_code}"]
    return faults if command.is_shown_in(result.output) else [*faults, f"{command} printed something else"]


def _asks(client: HeadClient, name: str) -> bool:
    return any(node["node"] == name and node.get("usable") for node in client.network()["nodes"])


__all__ = ["Act", "Reader", "merge"]
