"""A simulated Mac for tests: a home folder, a folder of programs for the front of PATH, knobs, and an end.

Put it behind a real SSH server with ``PATH=<host.path>`` and ``HOME=<host.home>``, or call `MacHost.run`.
"""

from __future__ import annotations

import ast
import os
import plistlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from mac import tool
from mac.state import Job, MacState, Store
from mac.tools import NAMES

DEADLINE_SECONDS = 60.0
LOOK_SECONDS = 0.01

NOT_ON_A_MAC = ("flock", "free", "ip", "nproc", "setsid", "sha256sum", "ss", "systemctl", "tac", "timeout")
"""Programs of Linux that must not be relied on; each says what a shell says about a missing one."""

PYTHON_STUB_NOTE = "xcode-select: note: No developer tools were found, requesting install."
"""What ``python3`` of a Mac without developer tools says, and fails."""

CHANGING_VERBS = frozenset(
    ["bootout", "bootstrap", "disable", "enable", "kickstart", "kill", "load", "remove", "unload"]
)


class MacHost:
    """A Mac in the folder `root`, with `knobs` of `MacState`. Leave it as a context, or `stop` it."""

    def __init__(self, root: Path, **knobs: Any) -> None:
        self.store = Store(str(root))
        for folder in (self.bin, self.home, Path(self.store.temporary)):
            folder.mkdir(parents=True)
        self.store.write(MacState(**knobs))
        self.forget_calls()
        for name in NAMES:
            self.add_tool(name, f"#!/bin/sh\n{self._forward(name)}")
        for name in NOT_ON_A_MAC:
            self.add_tool(name, f"#!/bin/sh\necho 'sh: {name}: command not found' >&2\nexit 127\n")
        self.add_tool("python3", f"#!/bin/sh\necho '{PYTHON_STUB_NOTE}'\nexit 1\n")

    def __enter__(self) -> MacHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # What a test gives to others.

    @property
    def home(self) -> Path:
        return Path(self.store.home)

    @property
    def bin(self) -> Path:
        """The simulated programs."""
        return Path(self.store.bin)

    @property
    def agents(self) -> Path:
        """``~/Library/LaunchAgents``; a fresh account has none."""
        return self.home / "Library/LaunchAgents"

    @property
    def path(self) -> str:
        """PATH of whoever logs in."""
        return f"{self.store.bin}:/usr/bin:/bin"

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of whoever logs in by SSH."""
        user = self.state.user
        return {"PATH": self.path, "HOME": str(self.home), "USER": user, "LOGNAME": user, "SHELL": "/bin/sh"}

    def run(self, *argv: str, timeout_seconds: float = DEADLINE_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run `argv` as SSH would, without SSH."""
        return subprocess.run(
            argv, env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=timeout_seconds
        )

    def launchctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("launchctl", *arguments)

    # Programs.

    def add_tool(self, name: str, script: str) -> Path:
        """Give the Mac a program that is `script`, instead of one with that name."""
        self.remove_tool(name)
        path = self.bin / name
        path.write_text(script)
        path.chmod(0o755)
        return path

    def link_tool(self, name: str, target: str | Path) -> None:
        """Give the Mac a program that is the one at `target`."""
        self.remove_tool(name)
        (self.bin / name).symlink_to(target)

    def remove_tool(self, name: str) -> None:
        """Take the simulated program away; one of this machine with its name shows up instead."""
        (self.bin / name).unlink(missing_ok=True)

    def freeze(self, *, but: Collection[str] = ()) -> None:
        """From now on, answer each call made so far as it is answered now, without starting an interpreter.

        For measurements: hosts on one machine would mostly measure the simulator. Programs called as in `but` go on
        as before, which those must whose answers are to change.
        """
        folder = Path(self.store.root, "frozen")
        folder.mkdir(exist_ok=True)
        cases: dict[str, dict[str, str]] = {}
        for call in self.calls():
            name, words = call[0], " ".join(call[1:])
            if name in ("caffeinate", *but) or CHANGING_VERBS & set(call) or words in cases.get(name, {}):
                continue
            done = self.run(*call)
            out, err = (folder / f"{len(list(folder.iterdir()))}.{stream}" for stream in ("out", "err"))
            out.write_text(done.stdout)
            err.write_text(done.stderr)
            answer = f"cat {shlex.quote(str(out))}; cat {shlex.quote(str(err))} >&2; exit {done.returncode}"
            cases.setdefault(name, {})[words] = answer
        for name, answers in cases.items():
            lines = [f"{shlex.quote(words)}) {answer} ;;" for words, answer in answers.items()]
            self.add_tool(name, "\n".join(["#!/bin/sh", 'case "$*" in', *lines, "esac", self._forward(name)]))

    def _forward(self, name: str) -> str:
        words = (sys.executable, "-IS", tool.__file__, self.store.root, name)
        return f'exec {shlex.join(words)} "$@"\n'

    # State.

    @property
    def state(self) -> MacState:
        return self.store.read()

    def set(self, **knobs: Any) -> None:
        """Turn knobs of `MacState`; what runs notices with its next step."""
        with self.store.change() as mac:
            for name, value in knobs.items():
                getattr(mac, name)
                setattr(mac, name, value)

    def domain(self, kind: str = "gui") -> str:
        """``gui/UID`` of the user."""
        return f"{kind}/{self.state.own_uid}"

    def job(self, label: str, kind: str = "gui") -> Job | None:
        return self.state.job(self.domain(kind), label)

    def calls(self, name: str | None = None) -> list[list[str]]:
        """The programs that were called, each as name and arguments, optionally only those of one name."""
        calls = map(ast.literal_eval, Path(self.store.calls).read_text().splitlines())
        return [call for call in calls if name in (None, call[0])]

    def forget_calls(self) -> None:
        Path(self.store.calls).write_text("")

    def write_agent(self, plist: dict[str, Any] | bytes, *, mode: int = 0o644, name: str | None = None) -> Path:
        """Write a property list into `agents`, by default under its label."""
        data = plist if isinstance(plist, bytes) else plistlib.dumps(plist)
        label = name or plistlib.loads(data)["Label"]
        self.agents.mkdir(parents=True, exist_ok=True)
        path = self.agents / f"{label}.plist"
        path.write_bytes(data)
        path.chmod(mode)
        return path

    def preload(self, plist: dict[str, Any], *kinds: str) -> None:
        """Load a job into domains of `kinds` before the test begins, so that it may be in both."""
        for kind in kinds or ("gui",):
            sessions = {"LimitLoadToSessionType": ["Aqua", "Background"], **plist}
            loaded = self.launchctl("bootstrap", self.domain(kind), str(self.write_agent(sessions)))
            assert loaded.returncode == 0, loaded.stderr
            self.wait_until_running(plist["Label"], kind)

    # Waiting.

    def wait_for(self, condition: Callable[[], bool], what: str = "it") -> None:
        """Wait until other processes have made `condition` true."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; jobs: {self.state.jobs}"
            time.sleep(LOOK_SECONDS)

    def wait_until_running(self, label: str, kind: str = "gui", *, runs: int = 1) -> Job:
        """The job, once it runs for at least the `runs`-th time."""

        def running() -> bool:
            job = self.job(label, kind)
            return job is not None and job.state == "running" and job.runs >= runs

        self.wait_for(running, f"{label} to run")
        job = self.job(label, kind)
        assert job is not None
        return job

    def wait_until_gone(self, label: str, kind: str = "gui") -> None:
        self.wait_for(lambda: self.job(label, kind) is None, f"{label} to go")

    # Processes, and the end.

    def processes(self) -> list[psutil.Process]:
        """Every living process of this Mac: jobs, what they started, supervisors, calls that hang."""
        return [process for process in psutil.process_iter() if self._owns(process)]

    def leftovers(self) -> list[psutil.Process]:
        """Processes that jobs have left behind: they belong to no loaded job."""
        loaded = [job for jobs in self.state.jobs.values() for job in jobs.values()]
        known = {job.pid for job in loaded} | {job.supervisor for job in loaded}
        return [process for process in self.processes() if process.pid not in known and not self._is_tool(process)]

    def stop(self) -> None:
        """End every process of this Mac, at once, and make sure that none is left."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while living := self.processes():
            assert time.monotonic() < deadline, f"left: {living}"
            # Supervisors first: they would start their jobs again.
            for process in sorted(living, key=lambda process: not self._is_tool(process)):
                _kill(process)
            time.sleep(LOOK_SECONDS)
        crashes = Path(self.store.crashes)
        assert not crashes.exists(), crashes.read_text()

    def _owns(self, process: psutil.Process) -> bool:
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            variables = process.environ()
            ours = variables.get("TMPDIR") == f"{self.store.temporary}/" and "XPC_SERVICE_NAME" in variables
            return ours or self._is_tool(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False

    def _is_tool(self, process: psutil.Process) -> bool:
        try:
            line: Sequence[str] = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False
        return tool.__file__ in line and self.store.root in line


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


__all__ = ["DEADLINE_SECONDS", "MacHost"]
