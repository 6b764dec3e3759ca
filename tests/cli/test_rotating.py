from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flows_deploy.deployed import Fleet, machine
from kakeya_ops.cli.main import app
from kakeya_ops.secret import read_fleet_key
from sshd import write_ssh_program


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[Fleet]:
    """Two Macs that nothing was ever deployed to, and the operator's ssh configuration that leads there."""
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch, machine(folder, "store") as store, machine(folder, "head") as head:
        patch.setenv("HOME", str(folder / "operator"))
        machines = {"store": store, "head": head}
        config = folder / "ssh_config"
        config.write_text("".join(one.config.read_text() for one in machines.values()))
        patch.setenv("PATH", str(write_ssh_program(folder / "programs", config)), prepend=":")
        yield Fleet(folder, tiny_llama, machines, {"store": "cache", "head": "head"})


def run(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(path), *words], env={"COLUMNS": "200"})


def key_file(fleet: Fleet) -> Path:
    return fleet.folder / "operator/.kakeya/fleet.key"


def test_nobody_is_asked_where_nobody_can_answer(fleet: Fleet) -> None:
    before = read_fleet_key(key_file(fleet))
    result = run(fleet.path, "key", "rotate")
    assert result.exit_code == 2
    assert "no terminal" in result.stderr
    assert read_fleet_key(key_file(fleet)) == before
    assert not Path(f"{key_file(fleet)}.rotation").exists()


def test_where_nothing_is_installed_only_this_machine_gets_a_new_key(fleet: Fleet) -> None:
    before = read_fleet_key(key_file(fleet))
    result = run(fleet.path, "--json", "key", "rotate", "--yes")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [done["state"] for done in document["passes"]] == ["ACCEPTS", "SIGNS", "DONE"]
    assert {host["verdict"] for done in document["passes"] for host in done["hosts"]} == {"nothing to do"}
    after = read_fleet_key(key_file(fleet))
    assert after != before
    for key in (before, after):
        assert key.reveal().hex() not in result.output
    assert [path.name for path in key_file(fleet).parent.iterdir()] == ["fleet.key"]


def test_a_host_that_cannot_be_reached_stops_it_before_the_first_change(fleet: Fleet) -> None:
    before = read_fleet_key(key_file(fleet))
    fleet.machines["store"].server.stop()
    try:
        result = run(fleet.path, "key", "rotate", "--yes")
    finally:
        fleet.machines["store"].server.start()
    assert result.exit_code == 3
    assert "store: cannot connect" in result.stderr
    assert read_fleet_key(key_file(fleet)) == before
    assert run(fleet.path, "key", "rotate", "--yes").exit_code == 0, "and it can be gone on with"


def test_a_fleet_without_a_key_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("fleet: {name: f, key_file: null}\nmodel: {id: m, path: /m}\nhosts: {h: {role: head, api: {}}}\n")
    result = run(path, "key", "rotate", "--yes")
    assert result.exit_code == 2
    assert "has no key" in result.stderr
