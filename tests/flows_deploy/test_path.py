"""From two hosts with nothing installed to a proved fleet, by the commands that `kakeya init` names.

Macs are simulated behind real SSH servers on loopback; all else is as in life. ``make path`` shows what is shown.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flows_deploy.deployed import ROOT, machine
from kakeya_ops.demo.fleet import LOOPBACK
from ports import choose_ports
from sshd import write_ssh_program

COMMAND_SECONDS = 400.0
ATTEMPTS = 5
"""On a crowded machine a card may for once be older than it should be; who sees that looks again."""
CUT = "…"
VARYING = re.compile(r"[0-9a-f]{8,}|\d[\d.:]*( ([KMG]i)?B(/s)?| ([mµ]?s|min)\b)*|─+")
"""Measured and random parts of a line, with their units, and rules as long as what is below them."""
NEXT = re.compile(r"^  (kakeya .+)$", re.MULTILINE)


@dataclass
class Shell:
    """Where a person types: every command is a process of its own, and all that is shown is kept."""

    folder: Path
    environment: dict[str, str]
    ports: tuple[int, int, int]
    transcript: list[str] = field(default_factory=list)
    commands: int = 0
    seconds: float = 0.0

    def __call__(self, line: str) -> str:
        """Type `line`, and expect it to end well."""
        done = self._run(line)
        assert done.returncode == 0, self.text
        return done.stdout

    def until_well(self, line: str) -> str:
        """Type `line` again while it says no."""
        for _ in range(ATTEMPTS - 1):
            done = self._run(line)
            if done.returncode == 0:
                return done.stdout
            assert done.returncode == 1, self.text
        return self(line)

    @property
    def text(self) -> str:
        return "\n".join(self.transcript)

    @property
    def score(self) -> str:
        return f"{self.commands} commands, {self.seconds:.0f} s"

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        began = time.monotonic()
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        self.seconds += time.monotonic() - began
        self.commands += 1
        self.transcript += [f"$ {line}", *(shown.rstrip() for shown in done.stdout.strip("\n").splitlines())]
        return done


@contextlib.contextmanager
def two_bare_hosts(folder: Path, model: Path) -> Iterator[Shell]:
    """Two Macs with nothing installed, which ssh knows as head and allens, and the shell of their owner."""
    # In life a cable leads from one to the other; here it is loopback, and nothing else does.
    cable = {"bridge_address": LOOPBACK, "lan_address": None, "routes": {LOOPBACK: "bridge0"}}
    home, (api, head, others) = folder / "operator", choose_ports(3)
    shutil.copytree(model, home / "models/tiny")
    with contextlib.ExitStack() as stack:
        machines = [stack.enter_context(machine(folder, name, **cable)) for name in ("head", "allens")]
        config = folder / "ssh_config"
        config.write_text("".join(one.config.read_text() for one in machines))
        programs = write_ssh_program(folder / "programs", config)
        write_kakeya(programs)
        own = {
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "COLUMNS": "100",
            "PYTHON": sys.executable,
        }
        yield Shell(home, os.environ | own, (api, head, others))


def write_kakeya(folder: Path) -> None:
    """This checkout's command, as it is found on PATH once it is installed."""
    program = folder / "kakeya"
    called = shlex.join([sys.executable, "-m", "kakeya_ops.cli.main"])
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {called} "$@"\n')
    program.chmod(0o755)


def shape(line: str) -> str:
    """A line without what is different in every run."""
    return " ".join(VARYING.sub("#", line).split())


def shown_by_readme() -> set[str]:
    """What the readme shows of the path, but for its cuts."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if "$ kakeya init" in block]
    return {shape(line) for line in block.splitlines() if line not in (CUT, "")}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_path_from_two_bare_hosts_to_a_proved_fleet(tmp_path: Path, tiny_llama: Path) -> None:
    with two_bare_hosts(tmp_path, tiny_llama) as kakeya:
        api, head, others = kakeya.ports
        made = kakeya(
            "kakeya init --head head --host allens --model ~/models/tiny --pool-gb 0.25"
            f" --python $PYTHON --api-port {api} --peer-ports {head} {others}"
        )
        # Nothing is edited: what follows is what init says to type.
        doctor, memory, deploy, verify, status = NEXT.findall(made)
        kakeya(doctor)
        kakeya(memory)
        deployed = kakeya(f"{deploy} --yes")
        proof = kakeya(verify)
        seen = kakeya.until_well(status)
        transcript = f"{kakeya.text}\n{kakeya.score}\n"
        again = kakeya("kakeya deploy all --check")

    (tmp_path / "path.txt").write_text(transcript)
    sys.stdout.write(f"\n{transcript}")
    assert re.findall(r"^ (\w+) .* done *$", deployed, re.MULTILINE) == ["allens", "head"]
    assert "PASSED: allens computed the prefix, the head decoded from it" in proof
    assert "2 of 2 hosts serve" in seen
    assert shown_by_readme() <= set(map(shape, transcript.splitlines()))
    assert re.findall(r"^(\w+) \(\w+\): nothing to do", again, re.MULTILINE) == ["allens", "head"]
