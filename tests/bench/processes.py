"""Nodes and peers as processes pinned to one core each; whoever is not being measured is stopped meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kakeya_ops.demo.fleet import LOOPBACK, Child, FleetPlan, choose_ports
from kakeya_ops.verify.workers import find_workers

WORKER_CORE, HEAD_CORE = 0, 1
"""The client shares the worker's core; a peer that runs by itself gets the head's."""
_START_SECONDS = 120.0
_POLL_SECONDS = 0.05


def pinned(core: int, blas: Path | None, command: Sequence[str]) -> list[str]:
    """`command` on one core, with one BLAS thread, and with `blas` in front of the wheel's own if given."""
    settings = ["OPENBLAS_NUM_THREADS=1", *([f"LD_PRELOAD={blas}"] if blas else [])]
    return ["taskset", "-c", str(core % (os.cpu_count() or 1)), "env", *settings, *command]


def wait_until(what: str, condition: Callable[[], bool], child: Child | None = None) -> None:
    """Wait until `condition` holds. Raises `RuntimeError` when it takes too long, or `child` ends."""
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if child and child.ended_within(0):
            raise RuntimeError(child.last_words())
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not happen within {_START_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def get_json(url: str) -> Any:
    """The JSON document at `url`; None when there is no such answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return json.load(reply)
    except (OSError, ValueError):
        return None


class Stage:
    """The processes of a benchmark. Within `only`, those named run and all others are stopped."""

    def __init__(self, blas: Path | None, folder: Path) -> None:
        self._blas = blas
        self._folder = folder
        self.children: dict[str, Child] = {}

    def start(self, name: str, core: int, command: Sequence[str]) -> Child:
        """Start `command` as `name`, pinned to `core`."""
        self.children[name] = Child(name, pinned(core, self._blas, command), self._folder / f"{name}.log")
        return self.children[name]

    @contextlib.contextmanager
    def only(self, *names: str, ready: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Let none but `names` have any processor time, once `ready` says that they are awake."""
        others = [child for name, child in self.children.items() if name not in names]
        for child in others:
            child.signal_group(signal.SIGSTOP)
        try:
            wait_until(f"readiness of {', '.join(names) or 'nothing'}", ready)
            yield
        finally:
            for child in others:
                child.signal_group(signal.SIGCONT)

    def close(self) -> None:
        """End them all."""
        for child in self.children.values():
            child.signal_group(signal.SIGCONT)
            child.signal_group(signal.SIGTERM)
        for child in self.children.values():
            if not child.ended_within(10):
                child.signal_group(signal.SIGKILL)
                child.ended_within(10)


class Fleet:
    """A head and, unless `lonely`, a worker, on a `Stage`."""

    def __init__(
        self,
        stage: Stage,
        plan: FleetPlan,
        prefix: str = "",
        *,
        lonely: bool = False,
        head_inventory: Path | None = None,
    ) -> None:
        self.plan = plan
        self.names = tuple(prefix + role for role in (["head"] if lonely else ["worker", "head"]))
        self._lonely = lonely
        for name in self.names:
            role = name.removeprefix(prefix)
            inventory = head_inventory if head_inventory and role == "head" else plan.inventory
            command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(inventory)]
            core = HEAD_CORE if role == "head" else WORKER_CORE
            stage.start(name, core, [*command, "serve", role, role])
        wait_until("start of the fleet", self.ready, stage.children[self.names[-1]])

    def ready(self) -> bool:
        """Whether the head answers and sees a live worker."""
        if get_json(f"{self.plan.url}/healthz") is None:
            return False
        return self._lonely or bool(find_workers(self.nodes())[1])

    def nodes(self) -> list[dict[str, Any]]:
        """The cards that the head knows."""
        network = get_json(f"{self.plan.url}/v1/network/nodes") or {}
        return list(network.get("nodes", []))


class PeerServer:
    """`mlx_lm.server` by itself on one core, with its defaults but for `options`."""

    def __init__(self, stage: Stage, model: Path, name: str = "peer", options: Sequence[str] = ()) -> None:
        self.name = name
        self.port = choose_ports(1)[0]
        command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--host", LOOPBACK]
        child = stage.start(name, HEAD_CORE, [*command, "--port", str(self.port), "--log-level", "WARNING", *options])
        wait_until("start of mlx_lm.server", self.ready, child)

    def ready(self) -> bool:
        """Whether it answers."""
        return get_json(f"http://{LOOPBACK}:{self.port}/health") is not None


class Direct:
    """`direct.py` as a child: one JSON request a line, one JSON answer a line. Idle, it takes no time."""

    def __init__(self, core: int, blas: Path | None, *arguments: str) -> None:
        script = Path(__file__).with_name("direct.py")
        command = pinned(core, blas, [sys.executable, str(script), *arguments])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """What the child measured."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with code {self._process.wait(30)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        self._process.stdin.close()
        self._process.wait(30)
