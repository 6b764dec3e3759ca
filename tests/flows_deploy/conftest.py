"""One fleet of two simulated Macs, deployed to anew by each module that wants one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows_deploy.changing import NAME, calm, want_another
from flows_deploy.deployed import Fleet, machine


@pytest.fixture(scope="module")
def operator_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for everything of one module; the operator's own home is in it."""
    folder = tmp_path_factory.mktemp("deployed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "operator"))
        yield folder


@pytest.fixture(scope="module")
def fleet(operator_home: Path, tiny_llama: Path) -> Iterator[Fleet]:
    """A worker and a head that nothing is installed on yet."""
    with contextlib.ExitStack() as stack:
        machines = {name: stack.enter_context(machine(operator_home, name)) for name in ("allens", "head")}
        yield Fleet(operator_home, tiny_llama, machines, {"allens": "worker", "head": "head"})


@pytest.fixture(scope="module")
def installed(operator_home: Path, tiny_llama: Path) -> Iterator[Fleet]:
    """A cache peer that was deployed to."""
    with machine(operator_home, NAME) as mac:
        fleet = Fleet(operator_home, tiny_llama, {NAME: mac}, {NAME: "cache", "head": "head"})
        assert fleet.deploy(NAME)[NAME].good, fleet.notes
        yield fleet


@pytest.fixture
def changing(installed: Fleet) -> Iterator[Fleet]:
    """The cache peer with a healthy generation, and an inventory that wants another one.

    Faults end with the test. What the test left running, be it old or new, is what the next one begins with.
    """
    endpoints = installed.document["hosts"][NAME]["endpoints"]
    want_another(installed)
    yield installed
    calm(installed)
    installed.change_host(NAME, endpoints=endpoints)
    job = installed.machines[NAME].mac.job(installed.places(NAME).label)
    if job is None or job.pid is None:  # the test has failed: let others not fail with it
        assert installed.deploy(NAME)[NAME].good, installed.notes[-20:]
