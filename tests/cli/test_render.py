from __future__ import annotations

import json
import plistlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.states import PLANNER_INVENTORY
from kakeya_ops.cli.main import app
from kakeya_ops.inventory import parse_inventory
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import write_fleet_key
from mac.host import MacHost


def test_what_deploy_would_install_is_printed_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Path
) -> None:
    with MacHost(tmp_path / "mac") as mac:
        for name, value in mac.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(connect, "connect", lambda host: LocalRunner(host.name))
        write_fleet_key(mac.home / ".kakeya/fleet.key")
        path = tmp_path / "inventory.yaml"
        path.write_text(PLANNER_INVENTORY.replace("~/models/tiny", str(tiny_llama)))
        run = CliRunner()
        shown = run.invoke(app, ["--inventory", str(path), "render", "allens"])
        copy = run.invoke(app, ["--inventory", str(path), "render", "allens", "--inventory-copy"])
        document = json.loads(run.invoke(app, ["--json", "--inventory", str(path), "render", "allens"]).stdout)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout == document["plist"]
    assert plistlib.loads(shown.stdout.encode())["ProgramArguments"] == document["arguments"]
    assert document["domain"].startswith("gui/")
    assert parse_inventory(copy.stdout.encode(), "copy").host("allens").role == "worker"
