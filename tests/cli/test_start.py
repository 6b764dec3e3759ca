"""Ctrl-C ends the command with 130 and not a word, wherever it comes."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kakeya_ops.cli import start
from kakeya_ops.errors import ExitCode

INTERRUPTING = """
import atexit, os, signal, sys

class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interruption())
signal.signal(signal.SIGINT, signal.default_int_handler)
if {moment!r} == "the end":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["kakeya", *{words!r}]
from kakeya_ops.cli.start import run
run()
"""


def interrupted(moment: str, *words: str) -> subprocess.CompletedProcess[str]:
    script = INTERRUPTING.format(moment=moment, words=words)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("moment", ["kakeya_ops.cli.main", "typer", "rich.console", "kakeya_ops.demo.run"])
def test_an_interrupt_while_something_is_imported_is_quiet(moment: str, tmp_path: Path) -> None:
    found = interrupted(moment, "demo", "--model", str(tmp_path / "absent"))
    assert (found.returncode, found.stdout, found.stderr) == (ExitCode.INTERRUPTED, "", "")


def test_an_interrupt_after_all_is_done_is_quiet() -> None:
    found = interrupted("the end", "--version")
    assert (found.returncode, found.stderr) == (ExitCode.INTERRUPTED, "")


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    script = INTERRUPTING.format(moment="typer", words=("--version",)).replace("default_int_handler", "SIG_IGN")
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_start_itself_imports_nothing_of_others() -> None:
    script = "import sys, kakeya_ops.cli.start\nprint({'typer', 'rich', 'pydantic', 'yaml'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"set()\n"


def test_the_command_that_is_installed_begins_here() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"kakeya": f"{start.__name__}:{start.run.__name__}"}
    assert start._INTERRUPTED == ExitCode.INTERRUPTED


def test_words_and_exit_codes_are_those_of_the_command_line() -> None:
    words = [sys.executable, "-m", "kakeya_ops.cli.start", "--nonsense"]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == ExitCode.INPUT
    assert "--nonsense" in found.stderr
