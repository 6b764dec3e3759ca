"""Before anything is asked of a host; what follows is in ``tests/flows_deploy``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.states import PLANNER_INVENTORY
from kakeya_ops.cli.main import app

COMMANDS = ("deploy", "rollback", "undeploy", "start", "stop", "restart")
ONE_HOST = (("render",), ("logs",), ("lock", "show"), ("lock", "break"))


@pytest.fixture
def inventory_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "inventory.yaml"
    path.write_text(PLANNER_INVENTORY)
    return path


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), *ONE_HOST])
def test_an_unknown_host_is_the_user_s_mistake(inventory_file: Path, command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["--inventory", str(inventory_file), *command, "alens"])
    assert result.exit_code == 2
    assert "did you mean 'allens'" in result.output


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), *ONE_HOST])
def test_a_fleet_without_its_key_here_cannot_be_talked_to(inventory_file: Path, command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["--inventory", str(inventory_file), *command, "allens"])
    assert result.exit_code == 2
    assert "fleet.key does not exist" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_target_is_asked_for(inventory_file: Path, command: str) -> None:
    assert CliRunner().invoke(app, ["--inventory", str(inventory_file), command]).exit_code == 2
