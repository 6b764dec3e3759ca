from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.states import PLANNER_INVENTORY, inventory
from kakeya_ops.cli.main import app
from kakeya_ops.deploy.lock import take_lock
from kakeya_ops.observe.places import Places
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import write_fleet_key

Kakeya = Callable[..., Result]


@pytest.fixture
def kakeya(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kakeya:
    """The command line where every host is this machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(connect, "connect", lambda host: LocalRunner(host.name))
    write_fleet_key(tmp_path / ".kakeya/fleet.key")
    path = tmp_path / "inventory.yaml"
    path.write_text(PLANNER_INVENTORY)
    return lambda *words: CliRunner().invoke(app, ["--inventory", str(path), *words])


def places(home: Path) -> Places:
    return Places.of(inventory(), inventory().host("allens"), str(home))


def test_nobody_holds_it(kakeya: Kakeya) -> None:
    assert "nobody holds the lock of allens" in kakeya("lock", "show", "allens").output
    assert json.loads(kakeya("--json", "lock", "show", "allens").stdout)["held"] is False
    assert kakeya("lock", "break", "allens").exit_code == 0


def test_somebody_holds_it_and_it_can_be_broken_with_a_yes(kakeya: Kakeya, tmp_path: Path) -> None:
    holder = take_lock(LocalRunner("allens"), places(tmp_path), "allens", "a test")
    assert "a test" in kakeya("lock", "show", "allens").output
    assert json.loads(kakeya("--json", "lock", "show", "allens").stdout)["holder"]["token"] == holder.token
    refused = kakeya("lock", "break", "allens")
    assert refused.exit_code == 2
    assert Path(places(tmp_path).lock).is_dir()
    assert kakeya("lock", "break", "allens", "--yes").exit_code == 0
    assert not Path(places(tmp_path).lock).exists()
