"""Hosts are read from the moment that they are known, and connections end with the command."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY
from kakeya_ops.cli.context import AppContext
from kakeya_ops.cli.reading import reading
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import write_fleet_key


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppContext:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_fleet_key(tmp_path / ".kakeya/fleet.key")
    (tmp_path / "inventory.yaml").write_text(PLANNER_INVENTORY)
    return AppContext(tmp_path / "inventory.yaml")


def test_reading_goes_on_behind_what_is_done_meanwhile(context: AppContext, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        asked.set()
        assert answer.wait(10)
        raise EnvironmentFault("it is silent")

    monkeypatch.setattr(connect, "connect", wait)
    with reading(context, ["allens"]) as found:
        assert asked.wait(10)
        assert not found.states.done()
        answer.set()
        outcome = found.states.result(10)["allens"]
    assert isinstance(outcome, EnvironmentFault)
    assert found.names == ("allens",)


def test_connections_end_with_it_also_when_that_fails(context: AppContext, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Closing(LocalRunner):
        def close(self) -> None:
            closed.append(self.name)

    open_runner: Callable[..., LocalRunner] = lambda host: Closing(host.name)  # noqa: E731
    monkeypatch.setattr(connect, "connect", open_runner)
    with pytest.raises(InputError, match="enough"), reading(context, ["allens"]):
        raise InputError("enough")
    assert closed == ["allens"]


def test_it_imports_nothing_that_only_a_plan_needs() -> None:
    code = (
        "import sys, kakeya_ops.cli.reading\n"
        "print({'jinja2', 'numpy', 'kakeya_ops.deploy.plan', 'kakeya_ops.memory.advice'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
