"""The command around the value; beside a real fleet it is tried in ``tests/flows/test_status.py``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.test_verify import inventory
from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from kakeya_ops.remote import connect
from verify.samples import KEY
from verify.scripted_head import ScriptedHead, serve


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Path]:
    """An inventory whose head's API answers, and whose head does not."""
    key = tmp_path / "fleet.key"
    key.write_text(KEY.reveal().hex())
    key.chmod(0o600)
    path = tmp_path / "inventory.yaml"
    with serve(ScriptedHead(), time.time) as url:
        text = inventory(port=int(url.rpartition(":")[2]), key=str(key), address="127.0.0.1")
        path.write_text(text.replace("port: 9,", "port: 1,"))
        yield path


def kakeya(fleet: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(fleet), "status", *words])


def test_a_host_that_does_not_serve_is_a_no_and_says_why(fleet: Path) -> None:
    result = kakeya(fleet)
    assert result.exit_code == ExitCode.NO, result.output
    said = " ".join(result.stdout.split())
    assert "0 of 1 hosts serve" in said
    assert "h unreachable: 127.0.0.1:1 cannot be reached: Connection refused" in said
    assert result.stderr == ""


def test_json_is_one_document(fleet: Path) -> None:
    result = kakeya(fleet, "--json")
    assert result.exit_code == ExitCode.NO
    document = json.loads(result.stdout)
    assert (document["serves"], document["fleet"], [node["node"] for node in document["nodes"]]) == (False, "f", ["h"])


def test_a_document_is_not_watched(fleet: Path) -> None:
    result = kakeya(fleet, "--json", "--watch")
    assert result.exit_code == ExitCode.INPUT
    assert "--watch is for people" in result.output
    assert "serves" not in result.stdout


def test_without_the_fleets_key_nobody_answers_so_it_is_asked_for(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.key").unlink()
    result = kakeya(fleet)
    assert result.exit_code == ExitCode.INPUT
    assert "does not exist" in result.stderr


def test_hosts_are_asked_over_ssh_unless_that_is_not_wanted(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(host: object) -> None:
        asked.append(host)
        raise ValueError("no ssh in this test")

    monkeypatch.setattr(connect, "connect", refuse)
    fleet.write_text(fleet.read_text() + "defaults: {ssh: {user: fluffy}}\n")
    assert "not asked" in kakeya(fleet, "--no-ssh").stdout
    assert asked == []
    assert "not reached over SSH" in " ".join(kakeya(fleet).stdout.split())
    assert len(asked) == 1
