from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from kakeya_ops.serving.receipts import Receipt
from verify.samples import FOREIGN_KEY
from verify.scripted_head import ScriptedHead
from verify.test_explain import signed

PATH = "/v1/network/receipts/r1"


@pytest.fixture
def head() -> ScriptedHead:
    head = ScriptedHead()
    head.replies[PATH] = (200, json.dumps(signed().to_json()).encode())
    return head


def explain(fleet: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(fleet), "explain", *words])


def test_a_request_is_explained_in_a_sentence_and_a_timeline(fleet: Path) -> None:
    result = explain(fleet, "r1")
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stdout.startswith("A faster worker: worker computed 576 of 641 prompt tokens")
    for word in ("queue", "lookup", "transfer", "compute", "first token", "valid"):
        assert word in result.stdout


def test_json_is_one_document(fleet: Path) -> None:
    document = json.loads(explain(fleet, "r1", "--json").stdout)
    assert Receipt.from_json(document["receipt"]) == signed()
    assert (document["trustworthy"], document["digest"]) == (True, signed().digest)


def test_a_wrong_signature_is_a_no(fleet: Path, head: ScriptedHead) -> None:
    head.replies[PATH] = (200, json.dumps(signed(head_key=FOREIGN_KEY).to_json()).encode())
    result = explain(fleet, "r1")
    assert result.exit_code == ExitCode.NO
    assert "wrong" in result.stdout


def test_without_the_key_the_signature_is_not_checked_and_why(fleet: Path) -> None:
    (fleet.parent / "fleet.key").unlink()
    result = explain(fleet, "r1")
    assert result.exit_code == ExitCode.OK
    assert "unchecked" in result.stdout
    assert "does not exist" in " ".join(result.stdout.split())


def test_a_request_that_nobody_knows_is_a_no_and_an_absent_head_is_told(fleet: Path) -> None:
    unknown = explain(fleet, "r2")
    assert unknown.exit_code == ExitCode.NO
    assert "keeps no receipt of request r2" in unknown.stderr.replace("\n", " ")
    absent = explain(fleet, "r1", "--url", "http://127.0.0.1:9")
    assert absent.exit_code == ExitCode.FAILED
