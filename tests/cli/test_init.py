"""The options of ``kakeya init``, against a real SSH server with a simulated Mac behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows_deploy.deployed import machine
from kakeya_ops.cli.main import app
from kakeya_ops.inventory import load_inventory
from sshd import write_ssh_program


@pytest.fixture
def macs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, from which ssh finds two Macs."""
    with machine(tmp_path, "one", bridge_address="127.0.0.1") as one, machine(tmp_path, "two") as two:
        config = tmp_path / "ssh_config"
        config.write_text(one.config.read_text() + two.config.read_text())
        monkeypatch.setenv("PATH", str(write_ssh_program(tmp_path / "programs", config)), prepend=":")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        yield tmp_path


def test_an_inventory_and_a_key_come_of_two_names(macs: Path, tiny_llama: Path) -> None:
    words = ["init", "--head", "head=one", "--host", "allens=two", "--model", str(tiny_llama), "--no-measure"]
    words += ["--api-port", "8081", "--peer-ports", "51052", "53052"]
    result = CliRunner().invoke(app, ["--json", *words])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(host["name"], host["role"]) for host in document["hosts"]] == [("head", "head"), ("allens", "worker")]
    assert document["key_made"] is True
    inventory = load_inventory(macs / "inventory.yaml")
    assert inventory.host("allens").ssh_host == "two"
    assert [inventory.host(name).endpoints[0].port for name in ("head", "allens")] == [51052, 53052]
    assert (macs / ".kakeya/fleet.key").stat().st_mode & 0o777 == 0o600
    assert CliRunner().invoke(app, ["inventory", "check"]).exit_code == 0

    again = CliRunner().invoke(app, words)
    assert (again.exit_code, "never overwritten" in again.output) == (2, True)
    other = CliRunner().invoke(app, [*words, "--output", "other.yaml"], env={"COLUMNS": "200"})
    assert other.exit_code == 0, other.output
    assert "fleet.key was there already" in other.output
    assert "kakeya --inventory other.yaml deploy all" in other.output


def test_what_is_not_given_is_asked_for_and_without_a_terminal_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", "--output", str(tmp_path / "new.yaml")])
    assert (result.exit_code, "--model DIR" in result.output) == (2, True)


def test_a_mac_that_cannot_be_reached_is_named_and_nothing_is_written(macs: Path) -> None:
    result = CliRunner().invoke(app, ["init", "--head", "one", "--host", "nobody.invalid", "--model", "~/m"])
    assert result.exit_code == 3, result.output
    assert "nobody" in result.output
    assert not (macs / "inventory.yaml").exists()
