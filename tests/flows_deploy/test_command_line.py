"""The commands as a person types them, one after the other, against one simulated Mac."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flows_deploy.deployed import Fleet
from kakeya_ops.cli.main import app
from sshd import write_ssh_program


class Terminal:
    """Types commands."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def __call__(self, *words: str, code: int = 0) -> str:
        result = self.run(*words)
        assert result.exit_code == code, result.output
        return str(result.output)

    def json(self, *words: str, code: int = 0) -> Any:
        result = self.run("--json", *words)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["--inventory", str(self.fleet.path), *words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def kakeya(fleet: Fleet) -> Iterator[Terminal]:
    """The command line of the operator, whose ssh configuration leads to the simulated Macs."""
    with pytest.MonkeyPatch.context() as patch:
        configs = [machine.config.read_text() for machine in fleet.machines.values()]
        config = fleet.folder / "ssh_config"
        config.write_text("".join(configs))
        folder = write_ssh_program(fleet.folder / "programs", config)
        patch.setenv("PATH", str(folder), prepend=":")
        fleet.change_host("allens", python=sys.executable)
        yield Terminal(fleet)


def generation(fleet: Fleet, link: str = "current") -> str:
    return Path(fleet.places("allens").root, link).readlink().name


def test_a_worker_s_life_from_first_deploy_to_removal(kakeya: Terminal, fleet: Fleet) -> None:
    mac, label = fleet.machines["allens"].mac, fleet.places("allens").label

    # Nothing is installed: the plan says so, and nobody is there to be asked.
    shown = kakeya("deploy", "allens", "--check", code=5)
    assert "the service is not installed" in shown
    assert "+\t<string>serve</string>" in re.sub(r" {2,}", "", shown) or "serve" in shown
    assert "no terminal" in kakeya("deploy", "allens", code=2)
    assert mac.job(label) is None

    # The first deploy, and a second that leaves the process alone.
    assert "done" in kakeya("deploy", "allens", "--yes")
    first, pid = generation(fleet), mac.wait_until_running(label).pid
    assert "nothing to do" in kakeya("deploy", "allens", "--yes")
    assert mac.wait_until_running(label).pid == pid
    assert kakeya.json("deploy", "allens", "--check")["pending"] is False

    # A change of the inventory becomes a new generation; the one before can be returned to.
    fleet.change("cache", pool_gb=0.125)
    document = kakeya.json("deploy", "allens", "--check", code=5)
    assert any("generations/" in line for line in document["hosts"][0]["diff"])
    kakeya("deploy", "allens", "--yes")
    second = generation(fleet)
    assert (second != first, generation(fleet, "previous")) == (True, first)
    assert "done" in kakeya("rollback", "allens", "--yes")
    assert (generation(fleet), generation(fleet, "previous")) == (first, second)
    assert first in " ".join(mac.wait_until_running(label).arguments)

    # Everyday work.
    kakeya("stop", "allens")
    assert mac.job(label) is None
    kakeya("start", "allens")
    pid = mac.wait_until_running(label).pid
    kakeya("restart", "allens")
    assert mac.wait_until_running(label).pid != pid
    assert "ready" in kakeya("logs", "allens")
    assert "nobody holds" in kakeya("lock", "show", "allens")
    actions = [entry["action"] for entry in kakeya.json("deploy", "--history", "allens")["allens"]]
    assert actions == ["deploy", "deploy", "rollback", "stop", "start", "restart"]

    # And gone, but for what costs most to bring back.
    kakeya("undeploy", "allens", "--yes")
    assert mac.job(label) is None
    left = {path.name for path in Path(fleet.places("allens").root).iterdir()}
    assert left == {"audit.jsonl", "fleet.key", "model.json"}
    assert not list(mac.agents.iterdir())
    assert fleet.model.is_dir()
