"""Property lists of small jobs."""

from __future__ import annotations

import sys
from typing import Any

LABEL = "dev.kakeya.tests.mac"

STUBBORN = (
    "import signal,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(300)"
)
"""Ignores SIGTERM, and says when it does."""


def agent(*arguments: str, **keys: Any) -> dict[str, Any]:
    """A job that runs `arguments`, by default one that sleeps."""
    return {"Label": LABEL, "ProgramArguments": list(arguments or ("/bin/sleep", "300")), "RunAtLoad": True, **keys}


def python_agent(program: str, **keys: Any) -> dict[str, Any]:
    """A job that runs `program` in Python."""
    return agent(sys.executable, "-IS", "-c", program, **keys)


def shell_agent(script: str, **keys: Any) -> dict[str, Any]:
    """A job that runs `script` in a shell."""
    return agent("/bin/sh", "-c", script, **keys)
