"""Processes of the old service that launchd forgot."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import ServiceError
from kakeya_ops.deploy.leftovers import end_leftovers, find_leftovers
from kakeya_ops.remote.runner import Result

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(context: HostContext) -> Iterator[Start]:
    """Starts what looks like a service of the host, or of the host in another folder; it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(root: str | None = None, ignores: str = "") -> subprocess.Popen[bytes]:
        script = f"import signal, sys\n{ignores}\nprint(flush=True)\nsignal.pause()\n"
        inventory = f"{root or context.places.root}/generations/g1/inventory.yaml"
        argv = [sys.executable, "-c", script, "--inventory", inventory, "serve", "worker", "allens"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_what_serves_from_a_generation_is_ended_and_nothing_else(context: HostContext, start: Start) -> None:
    ours, other = start(), start(f"{context.places.home}/other")
    assert find_leftovers(context) == [str(ours.pid)]
    end_leftovers(context)
    assert ours.wait(0) < 0
    assert other.poll() is None


def test_one_that_does_not_listen_is_killed(context: HostContext, start: Start) -> None:
    context.timing = dataclasses.replace(context.timing, gone=1.0)
    process = start(ignores="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    end_leftovers(context)
    assert process.wait(0) == -9


def test_one_that_stays_is_an_error(context: HostContext, monkeypatch: pytest.MonkeyPatch) -> None:
    context.timing = dataclasses.replace(context.timing, gone=0.2)
    listed = f"  12 python kakeya --inventory {context.places.root}/generations/g/inventory.yaml serve cache x\n"
    monkeypatch.setattr(context.runner, "run", lambda *_, **__: Result(0, listed.encode(), b""), raising=False)
    with pytest.raises(ServiceError, match="process 12 of the old service cannot be ended"):
        end_leftovers(context)


def test_an_editor_of_the_file_is_no_service(context: HostContext, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(context.places.root, "generations/g/inventory.yaml")
    listed = f"12 vi {path}\n13 less --inventory {path}\n"
    monkeypatch.setattr(context.runner, "run", lambda *_, **__: Result(0, listed.encode(), b""), raising=False)
    assert find_leftovers(context) == []
