"""Ctrl-C in what takes long: 130, no traceback, and no waiting for a host that does not answer."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from terminal import Terminal
from waiting import wait_until

INVENTORY = """
fleet: {{name: pair, key_file: {folder}/fleet.key, drill: true}}
model: {{path: {folder}/model}}
hosts:
  head: {{role: head, api: {{port: {port}}}, ssh: {{host: 127.0.0.1, port: {port}}}}}
  allens:
    role: cache
    ssh: {{host: 127.0.0.1, port: {port}}}
    endpoints: [{{network: loopback, address: 127.0.0.1, port: 53051}}]
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Path]:
    """The inventory of a fleet whose every port takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        key = tmp_path / "fleet.key"
        key.write_text("ab" * 32 + "\n")
        key.chmod(0o600)
        path = tmp_path / "inventory.yaml"
        path.write_text(INVENTORY.format(folder=tmp_path, port=silent.getsockname()[1]))
        yield path


@pytest.mark.parametrize(("words", "sign"), [("doctor", b"looking at"), ("bench", b"waiting for")])
def test_a_host_that_is_silent_holds_nobody_up(fleet: Path, words: str, sign: bytes) -> None:
    command = [sys.executable, "-m", "kakeya_ops.cli.start", "--inventory", str(fleet), words]
    with Terminal(command, columns=200) as terminal:
        wait_until(lambda: sign in terminal.raw, f"the sign of life of {words}")
        terminal.press(b"\x03")
        assert terminal.wait_for_end() == ExitCode.INTERRUPTED
        assert b"Traceback" not in terminal.raw
        assert b"error" not in terminal.raw


LONG = [
    ("doctor", "kakeya_ops.doctor.Examination.run"),
    ("memory", "kakeya_ops.deploy.hosts.Hosts.observe"),
    ("restart all", "kakeya_ops.deploy.hosts.Hosts.observe"),
    ("render allens", "kakeya_ops.deploy.hosts.Hosts.runner"),
    ("logs allens -f", "kakeya_ops.deploy.hosts.Hosts.runner"),
    ("lock show allens", "kakeya_ops.deploy.hosts.Hosts.runner"),
    ("status", "kakeya_ops.status.Collector.first_status"),
    ("verify remote-prefill", "kakeya_ops.verify.probe.run_probe"),
    ("bench", "kakeya_ops.bench.run.run_bench"),
    ("drill", "kakeya_ops.drill.run.run_drill"),
    ("explain 0123", "kakeya_ops.verify.explain.explain"),
    ("init --host x --model /m -o {folder}/new.yaml", "kakeya_ops.founding.Founding.propose"),
    ("init --discover", "kakeya_ops.founding.discovery.discover"),
]


@pytest.mark.parametrize(("words", "place"), LONG, ids=[words.split(" --h")[0] for words, _ in LONG])
def test_an_interrupt_is_130_without_a_word(
    fleet: Path, words: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    arguments = words.format(folder=fleet.parent).split()
    result = CliRunner().invoke(app, ["--inventory", str(fleet), *arguments])
    told = [line for line in result.stderr.splitlines() if not line.startswith("warning: ")]
    assert (result.exit_code, result.stdout, told) == (ExitCode.INTERRUPTED, "", [])
