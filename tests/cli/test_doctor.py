"""The options of ``kakeya doctor``, on hosts that cannot be reached."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from kakeya_ops.cli.main import app
from ports import choose_ports

INVENTORY = """
fleet: {name: pair, key_file: null}
model: {path: ~/no/such/model}
hosts:
  head: {role: head, api: {port: 8080}}
  allens:
    role: cache
    ssh: {host: 127.0.0.1, port: %d}
    endpoints: [{network: loopback, address: 127.0.0.1, port: 53051}]
"""


def write(folder: Path) -> str:
    [port] = choose_ports(1)
    path = folder / "inventory.yaml"
    path.write_text(INVENTORY % port)
    return str(path)


def test_a_host_that_cannot_be_reached_fails_and_the_document_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--json", "--inventory", write(tmp_path), "doctor", "allens"])
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert [(one["code"], one["host"], one["verdict"]) for one in document["findings"]] == [("ssh", "allens", "failed")]


def test_an_unknown_host_is_named_with_what_was_meant(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--inventory", write(tmp_path), "doctor", "allen"])
    assert result.exit_code == 2
    assert "allens" in result.output
