"""The head's process: what it refuses to start with, what it takes as a directive, and that it ends with its engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import kakeya_ops
from front.towns import Town
from kakeya_ops.errors import EnvironmentFault, InputError, ModelDirectoryError, SignatureRejected
from kakeya_ops.front.head_server import _api_settings, keeping_receipts, receipts_path, serve_head
from kakeya_ops.inventory import load_inventory
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.secret import write_fleet_key
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.receipt_file import read_receipts
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import body_digest, new_nonce, sign_directive
from ports import choose_ports
from serving.running import KEY, simple_identity

BODY = b'{"prompt": "x"}'


@pytest.fixture
def document(tmp_path: Path, tiny_llama: Path) -> dict[str, Any]:
    write_fleet_key(tmp_path / "fleet.key")
    api, peers = choose_ports(2)
    endpoint = {"network": "loopback", "address": "127.0.0.1", "port": peers}
    return {
        "fleet": {"name": "f", "tenant": "t", "key_file": str(tmp_path / "fleet.key")},
        "model": {"id": "m", "path": str(tiny_llama)},
        "cache": {"pool_gb": 0.01},
        "hosts": {
            "head": {"role": "head", "api": {"port": api}, "endpoints": [endpoint]},
            "worker": {"role": "worker", "endpoints": [endpoint | {"port": 1}]},
        },
    }


def write(document: dict[str, Any], directory: Path) -> Path:
    path = directory / "inventory.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def serve(document: dict[str, Any], directory: Path, name: str | None = None) -> None:
    serve_head(load_inventory(write(document, directory)), name, lambda line: pytest.fail(f"it said {line}"))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_parity_that_is_not_offered_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="close is not offered"):
        serve(document | {"prefill": {"parity": "close"}}, tmp_path)


def test_a_worker_is_no_head(document: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a worker, not a head"):
        serve(document, tmp_path, "worker")


def test_a_taken_api_port_is_told_before_the_model_is_read(document: dict[str, Any], tmp_path: Path) -> None:
    document["model"]["path"] = str(tmp_path / "there is no model")
    taken = ("127.0.0.1", document["hosts"]["head"]["api"]["port"])
    with socket.create_server(taken), pytest.raises(EnvironmentFault, match="cannot listen"):
        serve(document, tmp_path)
    assert is_free(document["hosts"]["head"]["endpoints"][0]["port"])


def test_a_missing_model_is_told_and_no_port_is_left_open(document: dict[str, Any], tmp_path: Path) -> None:
    document["model"]["path"] = str(tmp_path / "there is no model")
    with pytest.raises(ModelDirectoryError):
        serve(document, tmp_path)
    head = document["hosts"]["head"]
    assert is_free(head["api"]["port"])
    assert is_free(head["endpoints"][0]["port"])


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_keys_that_others_can_read_are_refused(document: dict[str, Any], tmp_path: Path, mode: int) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("a-key-of-enough-length: tenant\n" if mode == 0o644 else "")
    os.chmod(keys, mode)
    document["hosts"]["head"]["api"]["keys_file"] = str(keys)
    with pytest.raises(InputError, match="open to other users" if mode == 0o644 else "holds no keys"):
        serve(document, tmp_path)


def settings_of(document: dict[str, Any], directory: Path, *keys: Any) -> Any:
    inventory = load_inventory(write(document, directory))
    host = inventory.host("head")
    assert host.api is not None
    node = Node(NodeSettings(NodeId("head"), "head", "t", keys), BlockPool(2**20), simple_identity())
    return _api_settings(inventory, host.api, node)


def directive(body: bytes = BODY, when: float | None = None, key: Any = KEY) -> str:
    return sign_directive(key, frozenset({"local"}), new_nonce(), body_digest(body), when or time.time())


def test_a_signed_directive_holds_once_and_for_one_body(document: dict[str, Any], tmp_path: Path) -> None:
    verify = settings_of(document, tmp_path, KEY).verify_directive
    good, old = directive(), directive(when=time.time() - 3600)
    assert verify(good, BODY).modes == {"local"}
    for value, body in ((good, BODY), (directive(), BODY + b" "), (old, BODY), ("", BODY)):
        with pytest.raises(SignatureRejected):
            verify(value, body)


def test_one_from_before_the_head_began_is_refused(document: dict[str, Any], tmp_path: Path) -> None:
    """Its nonces are forgotten with the process, so it might have been used."""
    before = directive(when=time.time() - 2)
    with pytest.raises(SignatureRejected):
        settings_of(document, tmp_path, KEY).verify_directive(before, BODY)


def test_an_unsigned_fleet_takes_no_directives(document: dict[str, Any], tmp_path: Path) -> None:
    settings = settings_of(document, tmp_path)
    assert settings.verify_directive is None
    assert (settings.keys, settings.default_tenant) == (None, "t")


def test_receipts_lie_beside_the_key_and_nowhere_without_one(document: dict[str, Any], tmp_path: Path) -> None:
    inventory = load_inventory(write(document, tmp_path))
    assert receipts_path(inventory, "head") == tmp_path / "fleet.key.head.receipts.jsonl"
    document["fleet"]["key_file"] = None
    assert receipts_path(load_inventory(write(document, tmp_path)), "head") is None


def test_receipts_of_an_earlier_process_are_known_to_the_next(town: Town, tmp_path: Path) -> None:
    head, path = town.service, tmp_path / "receipts"
    with keeping_receipts(head, path):
        request_id = town.complete("kept").headers["X-Request-Id"]
    receipt = head.ledger.receipts.get(request_id)
    assert receipt is not None
    assert [kept.digest for kept in read_receipts(path)] == [receipt.digest]
    with keeping_receipts(head, path):
        restored = head.ledger.receipts.get(request_id)
        assert restored is not None
        assert restored.digest == receipt.digest
    with keeping_receipts(head, None):
        town.complete("not kept")
    assert [kept.digest for kept in read_receipts(path)] == [receipt.digest]


DYING = """
import sys
from kakeya_ops.cli.main import run
from kakeya_ops.engine.engine import Engine

def fail(engine):
    raise RuntimeError("the device is gone")

Engine._test = fail
run()
"""


def test_when_the_compute_thread_ends_so_does_the_process(document: dict[str, Any], tmp_path: Path) -> None:
    """The idle engine's self-test fails; launchd then starts the process anew."""
    command = [sys.executable, "-c", DYING, "--inventory", str(write(document, tmp_path)), "serve", "head"]
    root = Path(kakeya_ops.__file__).parents[1]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3, ended.stderr
    assert "is ready at" in ended.stderr
    assert "the compute thread has failed" in ended.stderr
