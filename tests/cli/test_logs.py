from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.states import PLANNER_INVENTORY, inventory
from kakeya_ops.cli.main import app
from kakeya_ops.observe.places import Places
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import write_fleet_key


def test_the_end_of_the_log_is_shown_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(connect, "connect", lambda host: LocalRunner(host.name))
    key = write_fleet_key(tmp_path / ".kakeya/fleet.key").reveal().hex()
    path = tmp_path / "inventory.yaml"
    path.write_text(PLANNER_INVENTORY)
    log = Path(Places.of(inventory(), inventory().host("allens"), str(tmp_path)).log)
    log.parent.mkdir()
    log.write_text(f"one\ntwo \x1b[31m\n{key}\n")
    command = ["--inventory", str(path), "logs", "allens", "-n", "2"]
    assert CliRunner().invoke(app, command).stdout == "two \\x1b[31m\n[redacted]\n"
    written = '{"event": "ready", "level": "info", "timestamp": "2026-11-30T23:10:03Z", "node": "allens"}'
    log.write_text(f"{written}\n")
    assert CliRunner().invoke(app, command).stdout == f"{written}\n"
    with monkeypatch.context() as terminal:
        terminal.setattr("rich.console.Console.is_terminal", True)
        shown = CliRunner().invoke(app, ["--no-color", *command]).stdout
    assert "ready" in shown
    assert "node=allens" in shown
    assert "{" not in shown
    log.write_text(f"one\n{key}\n")
    assert json.loads(CliRunner().invoke(app, ["--json", *command]).stdout)["lines"][1] == "[redacted]"
