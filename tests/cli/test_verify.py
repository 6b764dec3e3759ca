from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from verify.samples import worker_card
from verify.scripted_head import ScriptedHead

TEXT = """
fleet: {{name: f, tenant: t, key_file: {key}}}
model: {{path: /m}}
hosts:
  h:
    role: head
    api: {{bind: "{bind}", port: {port}, keys_file: /keys}}
    endpoints: [{{network: lan, address: {address}, port: 9, trusted: true}}]
"""


def inventory(bind: str = "127.0.0.1", port: int = 8080, key: str = "/key", address: str = "10.0.0.7") -> str:
    return TEXT.format(bind=bind, port=port, key=key, address=address)


@pytest.fixture
def head() -> ScriptedHead:
    return ScriptedHead()


def probe(fleet: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(fleet), "verify", "remote-prefill", *words])


def test_a_yes_exits_with_0_and_names_the_worker(fleet: Path) -> None:
    result = probe(fleet)
    assert result.exit_code == ExitCode.OK, result.output
    assert "PASSED: worker computed the prefix" in result.stdout
    assert result.stderr == ""


def test_json_is_one_document(fleet: Path) -> None:
    result = probe(fleet, "--json")
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert document["worker"] == "worker"


def test_a_no_exits_with_1_and_its_reason(head: ScriptedHead, fleet: Path) -> None:
    head.nodes = [worker_card() | {"reachable": False}]
    result = probe(fleet)
    assert result.exit_code == ExitCode.NO
    assert "worker cannot be reached from the head" in " ".join(result.stdout.split())
    assert json.loads(probe(fleet, "--json").stdout)["passed"] is False


def test_no_head_exits_with_3(fleet: Path) -> None:
    result = probe(fleet, "--url", "http://127.0.0.1:1")
    assert result.exit_code == ExitCode.FAILED
    assert result.stdout == ""
    assert result.stderr.startswith("error: http://127.0.0.1:1: the head cannot be reached")


def test_the_length_of_the_prompt_is_the_users(head: ScriptedHead, fleet: Path) -> None:
    probe(fleet, "--min-tokens", "300")
    assert len(head.prompts[-1]["prompt"].split()) >= 300


def test_another_worker_is_no_proof(fleet: Path) -> None:
    assert probe(fleet, "--worker", "other").exit_code == ExitCode.NO
