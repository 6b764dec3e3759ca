"""The plugin itself, run in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import system_packages
from system_packages import NEEDS, Need, require, summarize

INNER_TEST = """
import pytest
import system_packages

system_packages.NEEDS["unicorn"] = system_packages.Need(lambda: None, "breed one")

@pytest.mark.system("unicorn")
def test_marked():
    raise AssertionError("must not run")

@pytest.mark.parametrize("number", [1, 2])
def test_asking(number):
    system_packages.require("unicorn")
    raise AssertionError("must not go on")

def test_content():
    pass
"""


def run_inner(folder: Path, *, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_inner.py").write_text(INNER_TEST)
    path = str(Path(system_packages.__file__).parent)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "system_packages", "-p", "no:cacheprovider", "-q", str(folder)],
        env={**os.environ, "PYTHONPATH": path, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_ci_a_missing_thing_skips_and_the_run_says_so_in_one_line(tmp_path: Path) -> None:
    run = run_inner(tmp_path, ci="")
    assert run.returncode == 0, run.stdout
    assert "1 passed, 3 skipped" in run.stdout
    assert run.stdout.count("skipped for lack of system packages: unicorn (3 tests): breed one") == 1


def test_with_ci_a_missing_thing_is_a_failure(tmp_path: Path) -> None:
    run = run_inner(tmp_path, ci="true")
    assert run.returncode == 1, run.stdout
    assert "1 passed" in run.stdout
    assert "skipped" not in run.stdout
    assert "lacks unicorn: breed one" in run.stdout


def test_a_found_thing_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDS, "here", Need(lambda: Path(__file__)))
    assert require("here") == Path(__file__)


def test_every_need_can_be_looked_for() -> None:
    for name, need in NEEDS.items():
        found = need.find()
        assert found is None or found.exists(), name


def test_other_skips_are_not_summarized() -> None:
    assert summarize(["Skipped: only on macOS"]) is None
    assert summarize(["lacks sshd: make system-deps", "lacks root: run as root", "lacks sshd: make system-deps"]) == (
        "skipped for lack of system packages: root (1 test): run as root; sshd (2 tests): make system-deps"
    )
