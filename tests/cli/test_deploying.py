"""A deploy planned where every host is this machine; applied in ``tests/flows_deploy``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.states import PLANNER_INVENTORY
from kakeya_ops.cli.main import app
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import write_fleet_key
from mac.host import MacHost

Kakeya = Callable[..., Result]


@pytest.fixture
def kakeya(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Path) -> Iterator[Kakeya]:
    with MacHost(tmp_path / "mac") as mac:
        for name, value in mac.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(connect, "connect", lambda host: LocalRunner(host.name))
        write_fleet_key(mac.home / ".kakeya/fleet.key")
        path = tmp_path / "inventory.yaml"
        text = PLANNER_INVENTORY.replace("~/models/tiny", str(tiny_llama))
        path.write_text(text + f"defaults: {{python: {sys.executable}}}\n")
        yield lambda *words: CliRunner().invoke(app, ["--inventory", str(path), *words])


def test_a_check_shows_the_plan_and_does_nothing(kakeya: Kakeya, tmp_path: Path) -> None:
    result = kakeya("--json", "deploy", "vault", "--check")
    assert result.exit_code == 5, result.output
    document = json.loads(result.stdout)
    assert document["hosts"][0]["reasons"][0] == "the service is not installed"
    assert not (tmp_path / "mac/home/.kakeya/generations").exists()


def test_nobody_is_there_to_agree(kakeya: Kakeya, tmp_path: Path) -> None:
    result = kakeya("deploy", "vault")
    assert result.exit_code == 2
    assert "no terminal" in result.output
    assert not (tmp_path / "mac/home/.kakeya/lock").exists()


def test_a_host_without_a_history_has_an_empty_one(kakeya: Kakeya) -> None:
    result = kakeya("--json", "deploy", "vault", "--history")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"vault": []})


def test_help_waits_for_neither_ssh_nor_mlx() -> None:
    code = "import sys, kakeya_ops.cli.main; print({'paramiko', 'mlx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"
