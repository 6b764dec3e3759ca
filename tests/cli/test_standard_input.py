"""A process that is told to stops when whoever started it lets go of its standard input."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, threading
from kakeya_ops.cli.standard_input import stop_when_input_ends

stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
{before}
stop_when_input_ends()
print("ready", flush=True)
print("stopped" if stopped.wait({seconds}) else "still here", flush=True)
"""


def started(before: str = "", seconds: float = 30) -> subprocess.Popen[bytes]:
    script = SCRIPT.format(before=before, seconds=seconds)
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_the_end_of_input_is_a_sigterm_to_itself() -> None:
    with started() as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        assert process.communicate(timeout=30)[0] == b"stopped\n"


def test_what_is_said_before_the_end_changes_nothing() -> None:
    with started(seconds=0.2) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"words\n")
        process.stdin.flush()
        assert process.stdout.read() == b"ready\nstill here\n"
        assert process.wait(30) == 0


def test_an_input_that_is_closed_has_ended() -> None:
    with started(before="os.close(0)") as process:
        assert process.stdout
        assert process.stdout.read() == b"ready\nstopped\n"


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_a_parents_death_is_the_end_whatever_it_died_of(death: signal.Signals) -> None:
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SCRIPT.format(before='', seconds=30)!r}],"
        " stdin=subprocess.PIPE)\nchild.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(death)
        assert process.stdout.read() == b"stopped\n"
