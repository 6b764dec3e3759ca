"""A child process on this machine whose time and output are bounded."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from kakeya_ops.remote.runner import OUTPUT_LIMIT_BYTES

Ending = Literal["exit", "timeout", "overflow"]

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended, and what it wrote until then. `status` is negative if a signal ended it."""

    ending: Ending
    status: int
    stdout: bytes
    stderr: bytes


def run_process(
    argv: Sequence[str], *, input: bytes = b"", timeout_seconds: float, folder: Path | None = None
) -> Finished:
    """Run `argv` in `folder`; it and its children are killed when time is up or a stream is too long.

    It has a session of its own, so Ctrl-C at the terminal is for this process to decide on, and it can ask nobody.
    Raises `OSError` if it cannot be started.
    """
    deadline = time.monotonic() + timeout_seconds
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    with process:
        exchange = _Exchange(process, input)
        ending: Ending = "timeout"
        try:
            ending = exchange.carry_out(deadline)
        finally:
            if ending != "exit":
                kill_group(process)
    return Finished(ending, process.returncode, bytes(exchange.stdout), bytes(exchange.stderr))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the session that `process` leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Exchange:
    """Feeds a process and drains it, all three pipes at once."""

    def __init__(self, process: subprocess.Popen[bytes], input: bytes) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._process = process
        self._rest = memoryview(input)
        self._selector = selectors.DefaultSelector()

    def carry_out(self, deadline: float) -> Ending:
        """Go on until both outputs are at their end and the process is gone, or `deadline` (monotonic) is reached."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with self._selector:
            self._selector.register(process.stdout, selectors.EVENT_READ, self.stdout)
            self._selector.register(process.stderr, selectors.EVENT_READ, self.stderr)
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)
            while self._selector.get_map():
                if (remaining := deadline - time.monotonic()) <= 0:
                    return "timeout"
                for key, _ in self._selector.select(remaining):
                    self._serve(key)
                if max(len(self.stdout), len(self.stderr)) > OUTPUT_LIMIT_BYTES:
                    return "overflow"
        try:
            process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return "timeout"
        return "exit"

    def _serve(self, key: selectors.SelectorKey) -> None:
        pipe = key.fileobj
        if isinstance(sink := key.data, bytearray):
            chunk = os.read(key.fd, _CHUNK_BYTES)
            sink += chunk
            done = not chunk
        else:
            done = self._feed(key.fd)
        if done:
            self._selector.unregister(pipe)
            _close(pipe)

    def _feed(self, descriptor: int) -> bool:
        """Pass on some of the input; True when there is nothing left, or nobody who reads it."""
        try:
            self._rest = self._rest[os.write(descriptor, self._rest[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            return True
        return not self._rest


def _close(pipe: int | IO[bytes] | object) -> None:
    if hasattr(pipe, "close"):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


__all__ = ["Ending", "Finished", "kill_group", "run_process"]
