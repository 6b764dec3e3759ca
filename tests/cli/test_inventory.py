from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kakeya_ops.cli.main import app
from kakeya_ops.inventory.reference import inventory_schema

EXAMPLE = Path(__file__).parents[2] / "inventory.yaml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--inventory", str(EXAMPLE)], env={"COLUMNS": "100"})


def test_the_committed_inventory_is_valid() -> None:
    result = run("inventory", "check")
    assert result.exit_code == 0
    assert "is valid: head (head), allens (worker)" in " ".join(result.stdout.split())


def test_a_fault_ends_in_2_with_its_place(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(EXAMPLE.read_text().replace("window: 2048", "windwo: 2048").replace("role: head", "role: heed"))
    result = CliRunner().invoke(app, ["--inventory", str(broken), "inventory", "check"])
    assert (result.exit_code, result.stdout) == (2, "")
    for place in ("cache.windwo: is not a known key; did you mean 'window'?", "hosts.head.role: must be 'head'"):
        assert place in result.stderr
    line = broken.read_text().partition("windwo")[0].count("\n") + 1
    assert f"{broken}:{line}: cache.windwo" in result.stderr


def test_faults_as_json_are_one_document(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("fleet: {name: a}\n")
    result = CliRunner().invoke(app, ["--json", "--inventory", str(broken), "inventory", "check"])
    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "file": str(broken),
        "faults": [
            {"path": "model", "line": 1, "message": "is missing"},
            {"path": "hosts", "line": 1, "message": "is missing"},
        ],
    }


def test_show_lists_every_host_and_one_in_full() -> None:
    listed = run("inventory", "show")
    assert listed.exit_code == 0
    for word in (
        "thunderbolt-pair",
        "allens",
        "worker",
        "169.254.27.104:53051",
        "127.0.0.1:8080",
        "window 2048 tokens",
    ):
        assert word in listed.stdout
    full = run("inventory", "show", "allens").stdout
    assert "ssh.user" in full
    assert "fluffy" in full
    assert "endpoints[1].address" in full


def test_show_as_json_has_the_defaults_merged_in() -> None:
    document = json.loads(run("inventory", "show", "allens", "--json").stdout)
    assert list(document["hosts"]) == ["allens"]
    allens = document["hosts"]["allens"]
    assert (allens["ssh"]["user"], allens["ssh"]["host"], allens["pool_gb"]) == ("fluffy", "allens.local", 4.0)
    assert document["cache"]["window"] == 2048


def test_show_of_a_host_that_is_not_there() -> None:
    result = run("inventory", "show", "alens")
    assert result.exit_code == 2
    assert "did you mean 'allens'?" in result.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_schema_is_printed_as_json(options: list[str]) -> None:
    assert json.loads(run("inventory", "schema", *options).stdout) == inventory_schema()
