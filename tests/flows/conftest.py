"""One fleet for most flows: head, worker and a cache peer, made once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from flows.loopback import LoopbackFleet, running
from kakeya_ops.demo.tiny_model import make_tiny_llama


@pytest.fixture(scope="session")
def flow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama."""
    path = tmp_path_factory.mktemp("flow-model") / "tiny"
    make_tiny_llama(path)
    return path


@pytest.fixture(scope="session")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory, flow_model: Path) -> Iterator[LoopbackFleet]:
    """A head with one worker."""
    with running(tmp_path_factory.mktemp("fleet"), flow_model) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared_fleet: LoopbackFleet) -> Iterator[LoopbackFleet]:
    """The shared fleet, whole, before and after each flow: a success ends the worker's pause for good."""
    shared_fleet.wait_for_peer("worker")
    yield shared_fleet
    for proxy in shared_fleet.proxies.values():
        proxy.heal()
    shared_fleet.wait_for_peer("worker")
    shared_fleet.complete(secrets.token_hex(100), "remote", max_tokens=1)
