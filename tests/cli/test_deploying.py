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
from memory.public_models import write_founding_model
from test_layout import ROOT

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


def founding(tmp_path: Path) -> Path:
    """The committed inventory, with its model made of headers and its hosts' ssh left out."""
    text = (ROOT / "inventory.yaml").read_text()
    model = write_founding_model(tmp_path / "gemma")
    text = text.replace("~/kakeya-models/gemma-4-26B-A4B-it-mlx-4bit", str(model))
    path = tmp_path / "founding.yaml"
    path.write_text(text.replace("python: null", f"python: {sys.executable}"))
    return path


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_founding_worker_is_refused_before_anything_is_touched(
    kakeya: Kakeya, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_ops.cli.deploying.read_material", lambda *_: pytest.fail("it reads the whole model"))
    path, home = founding(tmp_path), tmp_path / "mac/home"
    before = files_below(home)
    for words in (["--yes"], ["--check"], []):
        result = CliRunner().invoke(app, ["--inventory", str(path), "deploy", "allens", *words], env={"COLUMNS": "200"})
        assert result.exit_code == 1, result.output
        for said in ("allens as a worker does not fit: working set", "nothing was changed", "role: cache", "--force"):
            assert said in result.output
    assert files_below(home) == before
    assert not (home / ".kakeya/lock").exists()


def test_one_host_that_does_not_fit_stops_all_and_json_has_the_figures(kakeya: Kakeya, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--json", "--inventory", str(founding(tmp_path)), "deploy", "all", "--yes"])
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document["refused"]["allens"]["first_failure"] == "working set"


def test_a_reason_lets_it_go_on_and_the_service_carries_it(
    kakeya: Kakeya, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tmp_path / "inventory.yaml").read_text()
    (tmp_path / "inventory.yaml").write_text(text + "cache: {pool_gb: 64}\n")
    refused = kakeya("deploy", "allens", "--check")
    assert refused.exit_code == 1
    result = kakeya("--json", "deploy", "allens", "--check", "--force", "it is my Mac")
    assert result.exit_code == 5, result.output
    host = json.loads(result.stdout)["hosts"][0]
    assert host["gate"]["answer"] == "does not fit"
    assert any("it is my Mac" in line for line in host["diff"])


def test_what_is_tight_is_asked_about_and_told_to_who_says_yes(
    kakeya: Kakeya, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tmp_path / "inventory.yaml").read_text()
    (tmp_path / "inventory.yaml").write_text(text + "cache: {pool_gb: 9.2}\n")
    asked: list[str] = []
    monkeypatch.setattr("kakeya_ops.cli.deploying.carry_out", lambda *arguments: asked.append("applied"))
    result = kakeya("deploy", "allens")
    assert result.exit_code == 2, result.output  # nobody can be asked
    assert "warning: allens: memory: tight" in result.output
    agreed = kakeya("deploy", "allens", "--yes")
    assert (agreed.exit_code, asked) == (0, ["applied"]), agreed.output
    assert "warning: allens: memory: tight" in agreed.output
