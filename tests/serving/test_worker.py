from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml

from engine_bench import prompt
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.errors import EngineDead, KakeyaError, ModelDirectoryError
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.secret import read_fleet_key, write_fleet_key
from kakeya_ops.serving import worker
from kakeya_ops.serving.server import bind
from kakeya_ops.serving.startup import Startup, start_up
from kakeya_ops.serving.worker import load_engine, make_worker, serve_worker
from kakeya_ops.units import NodeId
from ports import choose_ports
from serving.running import DEADLINE_SECONDS, make_caller


def make_inventory(folder: Path, model: Path) -> tuple[Inventory, int]:
    (port,) = choose_ports(1)
    write_fleet_key(folder / "key")
    document = {
        "fleet": {"name": "f", "key_file": str(folder / "key")},
        "model": {"path": str(model)},
        "cache": {"block_tokens": 16, "window": 64, "sink": 4, "pool_gb": 0.01},
        "hosts": {
            "head": {"role": "head", "api": {}},
            "w": {
                "role": "worker",
                "queue": 3,
                "endpoints": [{"network": "n", "address": "127.0.0.1", "port": port}],
            },
        },
    }
    return parse_inventory(yaml.safe_dump(document).encode(), "test.yaml"), port


def test_the_inventory_decides_what_the_engine_keeps(tmp_path: Path, tiny_llama: Path) -> None:
    inventory, _ = make_inventory(tmp_path, tiny_llama)
    startup = start_up(inventory, "w", "worker")
    engine = load_engine(startup)
    try:
        node = make_worker(startup, engine)
        assert (engine.settings.block_tokens, engine.settings.window, engine.settings.sink) == (16, 64, 4)
        assert node.pool.budget_bytes == int(0.01 * 2**30)
        assert node.jobs is not None
        assert node.identity == engine.identity
        assert node.card().healthy
    finally:
        engine.close()
        for listener in startup.sockets:
            listener.close()


def test_a_model_that_cannot_be_read_is_told_and_frees_the_port(tmp_path: Path) -> None:
    inventory, port = make_inventory(tmp_path, tmp_path / "no-model")
    with pytest.raises(ModelDirectoryError):
        serve_worker(inventory, "w", lambda line: None)
    bind("127.0.0.1", port).close()


def test_a_worker_serves_until_its_engine_dies_and_then_says_so(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory, port = make_inventory(tmp_path, tiny_llama)
    engines: list[Engine] = []
    load = worker.load_engine
    lines: list[str] = []
    ready = threading.Event()
    errors: list[KakeyaError] = []

    def load_and_note(startup: Startup) -> Engine:
        engines.append(load(startup))
        return engines[0]

    def tell(line: str) -> None:
        lines.append(line)
        ready.set()

    monkeypatch.setattr(worker, "load_engine", load_and_note)

    def serve() -> None:
        try:
            serve_worker(inventory, None, tell)
        except KakeyaError as error:
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(DEADLINE_SECONDS)
    assert lines == [f"worker w is ready at 127.0.0.1:{port}"]
    (engine,) = engines
    caller = make_caller(key=read_fleet_key(tmp_path / "key"))
    client = PeerClient(NodeId("w"), Endpoint("127.0.0.1", port), caller, engine.layout)
    card = client.card()
    client.close()
    assert (card.node, card.role, card.healthy) == ("w", "worker", True)

    def fail() -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(engine._prefills, "_drop_cancelled", fail)
    engine.prefill(PrefillJob(prompt(33), 2, lambda block, parts: None, lambda error: None))
    thread.join(DEADLINE_SECONDS)
    assert [type(error) for error in errors] == [EngineDead]
    bind("127.0.0.1", port).close()
