"""Where the `kakeya` command begins: with an interrupt that ends it quietly, also while all the rest is imported.

Imports nothing but the standard library by itself, so that there is hardly a moment before that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130
"""`ExitCode.INTERRUPTED`, before it is imported."""


def run() -> None:
    """Run the command line of this process. Ctrl-C ends it with 130 and without a traceback at any moment."""
    heeds = signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    if heeds:
        signal.signal(signal.SIGINT, _leave)
    from kakeya_ops.cli.importing import importing

    with importing():
        from kakeya_ops.cli.main import run as run_command_line

    try:
        if heeds:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run_command_line()
    except KeyboardInterrupt:
        _end_interrupted()
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            _end_interrupted()
        raise
    finally:
        # Nothing is left to do but for the interpreter to take itself apart.
        if heeds:
            signal.signal(signal.SIGINT, _leave)


def _end_interrupted() -> None:
    """End at once. Python would wait for threads that ask a host which does not answer, and would end by the signal
    instead of the exit code where it had come in the middle of an import that evaluates text, as dataclasses do.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(_INTERRUPTED)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Nothing was begun, or all is done: there is nothing to clean up."""
    os._exit(_INTERRUPTED)


__all__ = ["run"]

if __name__ == "__main__":
    run()
