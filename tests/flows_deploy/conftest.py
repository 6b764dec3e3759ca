"""One fleet of two simulated Macs, deployed to anew by each module that wants one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

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
