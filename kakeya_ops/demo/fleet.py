"""The demo's fleet: a head and a worker as processes of their own on loopback, and nothing of them left afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

import kakeya_ops
from kakeya_ops.demo.interruption import Interruption
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.secret import write_fleet_key
from kakeya_ops.serving.faults import EXIT_CODE

LOOPBACK = "127.0.0.1"
HEAD, WORKER = "head", "worker"
_GRACE_SECONDS = 12.0
"""Longer than a server waits for answers under way."""
_POLL_SECONDS = 0.05
_TAIL_BYTES = 16384


@dataclass(frozen=True)
class FleetPlan:
    """Where the demo's fleet lives: its temporary directory, its model, its ports on loopback.

    `others` are the ports of workers besides the one that every demo has.
    """

    directory: Path
    model: Path
    api_port: int
    head_port: int
    worker_port: int
    others: Mapping[str, int] = field(default_factory=dict)
    block_tokens: int = 64

    @property
    def workers(self) -> dict[str, int]:
        """The port of each worker."""
        return {WORKER: self.worker_port, **self.others}

    @property
    def inventory(self) -> Path:
        """The inventory file."""
        return self.directory / "inventory.yaml"

    @property
    def key_file(self) -> Path:
        """The fleet key's file."""
        return self.directory / "fleet.key"

    @property
    def url(self) -> str:
        """The head's API."""
        return f"http://{LOOPBACK}:{self.api_port}"

    @property
    def worker_url(self) -> str:
        """The worker's peer port."""
        return f"http://{LOOPBACK}:{self.worker_port}"

    @property
    def environment(self) -> tuple[str, ...]:
        """What the nodes' environment has besides this process's: what is remembered of a model goes with the model."""
        return (f"XDG_CACHE_HOME={self.directory / 'cache'}",) if self.model.is_relative_to(self.directory) else ()

    def to_yaml(self) -> str:
        """The inventory's text.

        The policy is ``prefer_remote``: worker and head share one machine here, so that by measured cost the head would
        rightly compute a cold prompt itself.
        """
        document = {
            "fleet": {"name": "demo", "tenant": "demo", "key_file": str(self.key_file), "drill": True},
            "model": {"id": self.model.name, "path": str(self.model)},
            "cache": {"sink": 4, "window": None, "block_tokens": self.block_tokens, "pool_gb": 0.5},
            "prefill": {"min_tokens": 64, "policy": "prefer_remote"},
            "hosts": {
                HEAD: {
                    "role": "head",
                    "api": {"bind": LOOPBACK, "port": self.api_port},
                    "endpoints": [_endpoint(self.head_port)],
                },
            }
            | {name: {"role": "worker", "endpoints": [_endpoint(port)]} for name, port in self.workers.items()},
        }
        return yaml.safe_dump(document, sort_keys=False)


def _endpoint(port: int) -> dict[str, Any]:
    return {"network": "loopback", "address": LOOPBACK, "port": port, "trusted": True}


@contextlib.contextmanager
def temporary_directory(interruption: Interruption) -> Iterator[Path]:
    """A fresh directory that is gone afterwards. Raises `EnvironmentFault` if none can be made."""
    directory = None
    try:
        with interruption.held():
            directory = _make_directory()
        yield directory
    finally:
        if directory is not None:
            with interruption.held():
                shutil.rmtree(directory, ignore_errors=True)


def _make_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="kakeya-demo-"))
    except OSError as error:
        raise EnvironmentFault(
            f"cannot make a temporary directory: {error.strerror or error}", hint="point TMPDIR at a writable directory"
        ) from error


def choose_ports(count: int, wanted: int | None = None) -> list[int]:
    """`count` different ports that are free on loopback now, the first of them `wanted` if given.

    Raises `EnvironmentFault` if `wanted` is not free.
    """
    with contextlib.ExitStack() as held:
        ports = []
        for port in [wanted or 0] + [0] * (count - 1):
            probe = held.enter_context(socket.socket())
            # As servers do: a port whose old connections are only winding down is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise EnvironmentFault(
                    f"port {port} of {LOOPBACK} cannot be used: {error.strerror}",
                    hint="choose another one with --port, or leave it out for any free one",
                ) from error
            ports.append(int(probe.getsockname()[1]))
        return ports


def write_fleet(
    directory: Path, model: Path, api_port: int | None = None, *, others: Sequence[str] = (), block_tokens: int = 64
) -> FleetPlan:
    """Write a fresh fleet key and the inventory into `directory`; `others` are workers besides the one.

    Raises `EnvironmentFault` if `api_port` is taken or the directory cannot be written.
    """
    api, head, worker, *more = choose_ports(3 + len(others), api_port)
    ports = dict(zip(others, more, strict=True))
    plan = FleetPlan(directory.resolve(), model.resolve(), api, head, worker, ports, block_tokens)
    write_fleet_key(plan.key_file)
    try:
        plan.inventory.write_text(plan.to_yaml(), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(f"cannot write {plan.inventory}: {error.strerror}") from error
    return plan


class Child:
    """One node as a process in a process group of its own, its output in a log file.

    Its standard input is a pipe from here, on which nothing is sent: it ends when this process does, however that is.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    # The children run the code that this process runs, wherever it was started.
                    cwd=Path(kakeya_ops.__file__).parents[1],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise EnvironmentFault(f"cannot start {name}: {error.strerror or error}") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ended_within(self, seconds: float) -> bool:
        """Wait up to `seconds`; True if the process has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if self._process.stdin:
            self._process.stdin.close()
        return True

    @property
    def ended_by_drill(self) -> bool:
        """Whether it has ended because a drill asked it to."""
        return self._process.poll() == EXIT_CODE

    def last_words(self) -> str:
        """How it ended, and the last error, or else the last line, of its log."""
        code = self._process.poll()
        if code is None:
            how = "is running"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with code {code}"
        said = last_line(self.log) if code != 0 else ""
        return f"{self.name} (pid {self.pid}) {how}" + (f"; last in its log: {said}" if said else "")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group, if anything of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def last_line(log: Path) -> str:
    """The last line of `log` that names an error, or else its last line; empty if there is none."""
    try:
        lines = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    lines = [line.strip() for line in lines if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1]


class DemoFleet:
    """The running processes of a plan: started on entering, stopped with all their descendants on leaving."""

    def __init__(self, plan: FleetPlan, interruption: Interruption) -> None:
        self.plan = plan
        self.children: dict[str, Child] = {}
        self._interruption = interruption

    def __enter__(self) -> DemoFleet:
        try:
            for name in (*self.plan.workers, HEAD):
                self._start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, name: str) -> None:
        """Start the node called `name`."""
        program = ("env", *self.plan.environment, sys.executable, "-m", "kakeya_ops.cli.start")
        role = HEAD if name == HEAD else WORKER
        words = ("--inventory", str(self.plan.inventory), "serve", "--stop-at-eof", role, name, "--revived")
        with self._interruption.held():
            self.children[name] = Child(name, [*program, *words], self.plan.directory / f"{name}.log")

    def stop(self) -> None:
        """End every process: SIGTERM first, SIGKILL for what is left after a grace."""
        deadline = time.monotonic() + _GRACE_SECONDS
        with self._interruption.held():
            for child in self.children.values():
                child.signal_group(signal.SIGTERM)
            for child in self.children.values():
                child.ended_within(max(deadline - time.monotonic(), 0))
                child.signal_group(signal.SIGKILL)
                child.ended_within(_GRACE_SECONDS)

    def wait_for(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until `condition` holds. Raises `EnvironmentFault` if a process ends or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while not condition():
            self._interruption.insist()
            for child in self.children.values():
                if child.ended_within(_POLL_SECONDS):
                    raise EnvironmentFault(child.last_words())
            if time.monotonic() > deadline:
                said = "; ".join(child.last_words() for child in self.children.values())
                raise EnvironmentFault(f"{what} did not happen within {seconds:.0f} s: {said}")

    def raise_if_ended(self) -> None:
        """Raise `EnvironmentFault` if a process has ended: it explains whatever else went wrong."""
        self._interruption.insist()
        for child in self.children.values():
            if child.ended_within(0):
                raise EnvironmentFault(child.last_words())

    def wait_until_head_ends(self, on_worker_end: Callable[[str], None]) -> None:
        """Wait as long as the head lives. A worker that ends is told once: the head goes on without it.

        Whoever a drill has ended is started anew. Raises `EnvironmentFault` when the head ends.
        """
        told = set[str]()
        while not self.children[HEAD].ended_within(0.2) or self._revive(HEAD):
            for name in self.plan.workers:
                if self.children[name].ended_within(0) and not self._revive(name) and name not in told:
                    told.add(name)
                    on_worker_end(self.children[name].last_words())
        raise EnvironmentFault(self.children[HEAD].last_words())

    def _revive(self, name: str) -> bool:
        """Start the node called `name` anew if a drill has ended it."""
        if ended := self.children[name].ended_by_drill:
            self._start(name)
        return ended


__all__ = [
    "HEAD",
    "LOOPBACK",
    "WORKER",
    "Child",
    "DemoFleet",
    "FleetPlan",
    "choose_ports",
    "last_line",
    "temporary_directory",
    "write_fleet",
]
