"""The verdict at a server's start, on this machine, with what the inventory promises made too much for it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.memory.assessment import DoesNotFit
from kakeya_ops.serving import memory_gate
from kakeya_ops.serving.memory_gate import Admittance, check_memory
from kakeya_ops.serving.startup import Startup, start_up
from kakeya_ops.serving.worker import serve_worker
from ports import choose_ports

TOO_MUCH_GB = psutil.virtual_memory().total // 2**30 + 1


def inventory(model: Path, pool_gb: float) -> Inventory:
    head, worker = choose_ports(2)
    text = f"""
fleet: {{name: gate, key_file: null}}
model: {{path: {model}}}
cache: {{pool_gb: {pool_gb}}}
hosts:
  head: {{role: head, api: {{port: {head}}}}}
  w: {{role: worker, endpoints: [{{network: loopback, address: 127.0.0.1, port: {worker}}}]}}
"""
    return parse_inventory(text.encode(), "inventory.yaml")


@pytest.fixture
def too_large(tiny_llama: Path) -> Startup:
    return start_up(inventory(tiny_llama, TOO_MUCH_GB), "w", "worker")


def test_what_fits_goes_on(tiny_llama: Path) -> None:
    startup = start_up(inventory(tiny_llama, 0.25), "w", "worker")
    told: list[str] = []
    assert check_memory(startup, Admittance(), told.append) is None
    assert [line for line in told if "not fit" in line] == []
    assert startup.sockets[0].fileno() >= 0
    startup.sockets[0].close()


def test_by_hand_it_refuses_and_lets_the_port_go(too_large: Startup) -> None:
    with pytest.raises(DoesNotFit, match="w as a worker does not fit: total") as caught:
        check_memory(too_large, Admittance(), lambda line: None)
    assert caught.value.assessment.verdict.refuses
    assert too_large.sockets[0].fileno() == -1


def test_supervised_it_stays_up_without_the_model(too_large: Startup) -> None:
    refusal = check_memory(too_large, Admittance(supervised=True), lambda line: None)
    assert refusal is not None
    assert refusal.summary.startswith("does not fit: total")
    assert too_large.sockets[0].fileno() >= 0
    too_large.sockets[0].close()


@pytest.mark.parametrize("supervised", [False, True])
def test_forced_it_says_so_and_goes_on(too_large: Startup, supervised: bool) -> None:
    told: list[str] = []
    assert check_memory(too_large, Admittance(supervised, "only for today"), told.append) is None
    assert told[-1] == "memory: starting all the same: only for today"
    assert "does not fit" in told[0]
    too_large.sockets[0].close()


def test_a_machine_that_does_not_tell_is_unknown_and_goes_on(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise ModelDirectoryError("no shell here")

    monkeypatch.setattr(memory_gate, "read_host_memory", refuse)
    startup = start_up(inventory(tiny_llama, 0.25), "w", "worker")
    told: list[str] = []
    assert check_memory(startup, Admittance(), told.append) is None
    assert told[0].startswith("memory: unknown: working set of the host (no shell here)")
    startup.sockets[0].close()


def test_a_folder_without_a_model_is_an_error_and_lets_the_port_go(tmp_path: Path) -> None:
    startup = start_up(inventory(tmp_path, 0.25), "w", "worker")
    with pytest.raises(ModelDirectoryError):
        check_memory(startup, Admittance(), lambda line: None)
    assert startup.sockets[0].fileno() == -1


def test_a_worker_by_hand_never_begins_to_load(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_ops.serving.worker.load_engine", lambda *_: pytest.fail("it loads the model"))
    with pytest.raises(DoesNotFit):
        serve_worker(inventory(tiny_llama, TOO_MUCH_GB), "w", lambda line: None)
