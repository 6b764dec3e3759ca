from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from kakeya_ops.verify.quarantine import PATH
from kakeya_ops.wire.releases import RELEASE_PATH
from verify.scripted_head import ScriptedHead
from verify.test_quarantine import FREED, HELD, refuse, say


@pytest.fixture
def head() -> ScriptedHead:
    head = ScriptedHead()
    say(head, PATH, {"head": "head", "held": [HELD.to_json()], "released": []})
    say(head, RELEASE_PATH, FREED.to_json())
    return head


def run(fleet: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(fleet), "quarantine", *words])


def test_who_is_held_is_listed_with_the_evidence(fleet: Path) -> None:
    result = run(fleet, "list")
    assert result.exit_code == ExitCode.OK, result.output
    for word in ("allens", HELD.evidence.request_id, f"epoch {HELD.evidence.epoch}", "tokens 128 to 191", "tolerance"):
        assert word in result.stdout


def test_json_is_one_document(fleet: Path) -> None:
    document = json.loads(run(fleet, "list", "--json").stdout)
    assert (document["head"], document["held"][0]["node"], document["released"]) == ("head", "allens", [])
    assert json.loads(run(fleet, "release", "allens", "--json").stdout)["release_reason"] == "new memory"


def test_a_release_says_what_comes_next(fleet: Path) -> None:
    result = run(fleet, "release", "allens", "--reason", "new memory")
    assert result.exit_code == ExitCode.OK, result.output
    assert "its next KV is audited" in result.stdout


def test_who_is_not_held_is_a_no_and_an_absent_head_is_told(fleet: Path, head: ScriptedHead) -> None:
    refuse(head, 404, "not_found")
    assert run(fleet, "release", "other").exit_code == ExitCode.NO
    assert run(fleet, "list", "--url", "http://127.0.0.1:9").exit_code == ExitCode.FAILED


def test_without_the_fleet_key_nobody_is_released(fleet: Path) -> None:
    (fleet.parent / "fleet.key").unlink()
    assert run(fleet, "list").exit_code == ExitCode.OK
    assert run(fleet, "release", "allens").exit_code == ExitCode.INPUT
