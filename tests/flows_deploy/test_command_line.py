"""The commands as a person types them, one after the other, against one simulated Mac."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flows_deploy.deployed import Fleet, machine
from kakeya_ops.cli.main import app
from kakeya_ops.runbook import list_pages
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
def fleet(operator_home: Path, tiny_llama: Path) -> Iterator[Fleet]:
    """A cache peer, which starts fastest, and a head that is not there."""
    with machine(operator_home, "vault") as mac:
        yield Fleet(operator_home, tiny_llama, {"vault": mac}, {"vault": "cache", "head": "head"})


@pytest.fixture(scope="module")
def kakeya(fleet: Fleet) -> Iterator[Terminal]:
    """The command line of the operator, whose ssh configuration leads to the simulated Macs."""
    with pytest.MonkeyPatch.context() as patch:
        configs = [machine.config.read_text() for machine in fleet.machines.values()]
        config = fleet.folder / "ssh_config"
        config.write_text("".join(configs))
        folder = write_ssh_program(fleet.folder / "programs", config)
        patch.setenv("PATH", str(folder), prepend=":")
        fleet.change_host("vault", python=sys.executable)
        yield Terminal(fleet)


def generation(fleet: Fleet, link: str = "current") -> str:
    return Path(fleet.places("vault").root, link).readlink().name


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_service_s_life_from_first_deploy_to_removal(kakeya: Terminal, fleet: Fleet) -> None:
    mac, label = fleet.machines["vault"].mac, fleet.places("vault").label

    # Nothing is installed: the plan says so, and nobody is there to be asked.
    shown = kakeya("deploy", "vault", "--check", code=5)
    assert "the service is not installed" in shown
    assert "+        <string>serve</string>" in shown
    assert "no terminal" in kakeya("deploy", "vault", code=2)
    assert mac.job(label) is None

    # The first deploy, and a second that leaves the process alone.
    assert "done" in kakeya("deploy", "vault", "--yes")
    first, pid = generation(fleet), mac.wait_until_running(label).pid
    (shelf,) = Path(fleet.places("vault").root, "programs").glob("*/venv/lib/*/site-packages/kakeya_ops/runbooks")
    assert {page.name for page in shelf.glob("*.j2")} == {f"{page.name}.md.j2" for page in list_pages()}
    assert (shelf / "two-macs.yaml").is_file()
    assert "nothing to do" in kakeya("deploy", "vault", "--yes")
    assert mac.wait_until_running(label).pid == pid
    assert kakeya.json("deploy", "vault", "--check")["pending"] is False

    # A change of the inventory becomes a new generation; the one before can be returned to.
    fleet.change("cache", pool_gb=0.125)
    document = kakeya.json("deploy", "vault", "--check", code=5)
    assert "+  pool_gb: 0.125" in document["hosts"][0]["diff"]
    kakeya("deploy", "vault", "--yes")
    second = generation(fleet)
    assert (second != first, generation(fleet, "previous")) == (True, first)
    assert "done" in kakeya("rollback", "vault", "--yes")
    assert (generation(fleet), generation(fleet, "previous")) == (first, second)
    assert first in " ".join(mac.wait_until_running(label).arguments)

    # Everyday work.
    kakeya("stop", "vault")
    assert mac.job(label) is None
    kakeya("start", "vault")
    pid = mac.wait_until_running(label).pid
    kakeya("restart", "vault")
    assert mac.wait_until_running(label).pid != pid
    assert "ready" in kakeya("logs", "vault")
    assert "nobody holds" in kakeya("lock", "show", "vault")
    actions = [entry["action"] for entry in kakeya.json("deploy", "--history", "vault")["vault"]]
    assert actions == ["deploy", "deploy", "rollback", "stop", "start", "restart"]

    # And gone, but for what costs most to bring back.
    kakeya("undeploy", "vault", "--yes")
    assert mac.job(label) is None
    left = {path.name for path in Path(fleet.places("vault").root).iterdir()}
    assert left == {"audit.jsonl", "fleet.key"}
    assert not list(mac.agents.iterdir())
    assert fleet.model.is_dir()
