"""The servers as processes of their own: how they start, answer and stop."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from kakeya_ops.cli.main import app
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.secret import read_fleet_key, write_fleet_key
from kakeya_ops.serving.cache import write_identity
from kakeya_ops.units import BlockHash, NodeId
from ports import choose_ports
from serving.running import make_caller, payload, simple_identity, simple_layout


class Fleet:
    """An inventory with a worker and a cache on loopback."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.worker_port, self.cache_port = choose_ports(2)
        self.path = folder / "inventory.yaml"
        self.key_file = folder / "fleet.key"
        write_fleet_key(self.key_file)

        def host(role: str, port: int) -> dict[str, object]:
            return {"role": role, "endpoints": [{"network": "n", "address": "127.0.0.1", "port": port}]}

        document = {
            "fleet": {"name": "f", "key_file": str(self.key_file)},
            "model": {"path": str(model)},
            "cache": {"pool_gb": 0.01},
            "hosts": {
                "head": {"role": "head", "api": {}},
                "w": host("worker", self.worker_port),
                "c": host("cache", self.cache_port),
            },
        }
        self.path.write_text(yaml.safe_dump(document))

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(self.path), "serve", *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            while "is ready" not in (line := process.stderr.readline()):
                assert "error" not in json.loads(line), line
            yield process
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def fleet(tmp_path: Path, tiny_llama: Path) -> Fleet:
    return Fleet(tmp_path, tiny_llama)


def stop(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    return process.returncode, out, errors


def test_a_worker_starts_answers_and_drains_on_sigterm(fleet: Fleet) -> None:
    with fleet.serving("worker") as process:
        connection = http.client.HTTPConnection("127.0.0.1", fleet.worker_port, timeout=10)
        connection.request("GET", "/healthz")
        body = json.loads(connection.getresponse().read())
        assert (body["status"], body["node"], body["role"]) == ("ok", "w", "worker")
        # The connection idles, and must not hold up the end.
        code, out, errors = stop(process, signal.SIGTERM)
        assert (code, out) == (0, "")
        assert {json.loads(line)["event"] for line in errors.splitlines()} <= {"peer not reached"}
        connection.close()


def test_a_cache_keeps_what_its_document_describes_and_ends_on_ctrl_c(fleet: Fleet) -> None:
    layout = simple_layout()
    identity = simple_identity(layout)
    write_identity(Path(f"{fleet.key_file}.identity.json"), identity)
    with fleet.serving("cache", "c") as process:
        caller = make_caller(key=read_fleet_key(fleet.key_file))
        client = PeerClient(NodeId("c"), Endpoint("127.0.0.1", fleet.cache_port), caller, layout)
        key = PartKey(BlockHash(bytes(31) + b"1"), 0)
        assert client.put_blocks(identity.digest, [(key, payload(layout, 0, 1))]) == 1
        assert client.card().pool.used_bytes >= layout.parts[0].nbytes
        client.close()
        code, out, errors = stop(process, signal.SIGINT)
    assert (code, out) == (130, "")
    assert "Traceback" not in errors


def test_a_node_ends_with_its_parents_end_of_the_pipe(fleet: Fleet) -> None:
    write_identity(Path(f"{fleet.key_file}.identity.json"), simple_identity())
    with fleet.serving("--stop-at-eof", "cache", "c") as process:
        process.communicate(timeout=30)  # which closes the pipe
        assert process.returncode == 0


def test_a_cache_imports_no_mlx(fleet: Fleet) -> None:
    write_identity(Path(f"{fleet.key_file}.identity.json"), simple_identity())
    script = "import sys, kakeya_ops.serving.cache; sys.exit('mlx.core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["worker", "c"], 2, "c is a cache, not a worker"),
        (["worker", "x"], 2, "no host"),
        (["cache"], 2, "identity document"),
        (["cache", "--identity", "/nowhere.json"], 2, "/nowhere.json does not exist"),
    ],
)
def test_what_is_wrong_is_one_sentence(fleet: Fleet, arguments: list[str], code: int, words: str) -> None:
    result = CliRunner().invoke(app, ["--inventory", str(fleet.path), "serve", *arguments])
    assert result.exit_code == code
    assert words in result.stderr.replace("\n", " ")
    assert "hint:" in result.stderr or "no host" in words
    assert "Traceback" not in result.output


def test_a_port_in_use_is_exit_code_3(fleet: Fleet) -> None:
    import socket

    with socket.create_server(("127.0.0.1", fleet.worker_port)):
        result = CliRunner().invoke(app, ["--inventory", str(fleet.path), "serve", "worker"])
    assert result.exit_code == 3
    assert f"port {fleet.worker_port}" in result.stderr


TOO_MUCH_GB = psutil.virtual_memory().total // 2**30 + 1


def too_large(fleet: Fleet) -> None:
    """Promise more memory to the pool than this machine has."""
    fleet.path.write_text(fleet.path.read_text().replace("pool_gb: 0.01", f"pool_gb: {TOO_MUCH_GB}"))


def test_what_does_not_fit_is_refused_with_the_figures(fleet: Fleet) -> None:
    too_large(fleet)
    result = CliRunner().invoke(app, ["--inventory", str(fleet.path), "serve", "worker"], env={"COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (1, "")
    for words in (
        "w as a worker needs",
        "weights",
        "does not fit: total",
        "What would help",
        "pool_gb: ",
        "--force REASON",
    ):
        assert words in result.stderr, result.stderr


@pytest.mark.parametrize("role", ["worker", "head"])
def test_a_blank_reason_forces_nothing(fleet: Fleet, role: str) -> None:
    too_large(fleet)
    arguments = ["--inventory", str(fleet.path), "serve", role, "--force", " "]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not fit: total" in result.stderr


@pytest.mark.parametrize("role", ["worker", "head"])
def test_under_launchd_it_stays_up_without_the_model_and_says_so(fleet: Fleet, role: str) -> None:
    too_large(fleet)
    document = yaml.safe_load(fleet.path.read_text())
    (api_port,) = choose_ports(1)
    document["hosts"]["head"]["api"] = {"port": api_port}
    fleet.path.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(fleet.path), "serve", role]
    process = subprocess.Popen([*command, "--supervised"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "does not fit" in process.stderr.readline()
        assert "WITHOUT its model" in process.stderr.readline()
        port = api_port if role == "head" else fleet.worker_port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        assert response.status == 503
        assert b"does not fit: total" in response.read()
        connection.close()
        code, out, _ = stop(process, signal.SIGTERM)
        assert (code, out) == (0, "")
    finally:
        process.kill()
        process.communicate()
