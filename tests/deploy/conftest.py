"""Hosts on this machine: real files and real commands, without ssh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.states import bare, inventory
from kakeya_ops.deploy.context import HostContext, Timing
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost

QUICK = Timing(healthy=5, restored=5, poll=0.05, gone=5, retry=0.02, retries=20, pid=5, call=5, silence=30)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, which is also this machine's."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def runner(home: Path) -> LocalRunner:
    return LocalRunner("allens")


@pytest.fixture
def places(home: Path) -> Places:
    return Places.of(inventory(), inventory().host("allens"), str(home))


@pytest.fixture
def context(runner: LocalRunner, places: Places, home: Path) -> HostContext:
    """The context of a host on which nothing is installed, with its install root."""
    Path(places.root).mkdir()
    before = bare("allens", home=str(home), domains=())
    return HostContext(inventory().host("allens"), runner, places, before, timing=QUICK)


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MacHost]:
    """A simulated Mac that this machine is for as long as the test runs."""
    with MacHost(tmp_path / "mac") as host:
        for name, value in host.environment.items():
            monkeypatch.setenv(name, value)
        yield host
