from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.states import PLANNER_INVENTORY
from kakeya_ops.cli.main import app
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import write_fleet_key
from mac.host import MacHost


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["stop"], 0, "nothing to do"),
        (["start"], 3, "the service is not installed"),
        (["restart"], 3, "the service is not installed"),
        (["rollback"], 1, "no generation before"),
        (["undeploy", "--yes"], 0, "nothing to do"),
    ],
)
def test_where_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], code: int, said: str
) -> None:
    with MacHost(tmp_path / "mac") as mac:
        for name, value in mac.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(connect, "connect", lambda host: LocalRunner(host.name))
        write_fleet_key(mac.home / ".kakeya/fleet.key")
        path = tmp_path / "inventory.yaml"
        path.write_text(PLANNER_INVENTORY)
        result = CliRunner().invoke(app, ["--inventory", str(path), *command, "allens"])
    assert result.exit_code == code, result.output
    assert said in " ".join(result.output.split())
