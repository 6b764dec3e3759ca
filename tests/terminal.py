"""A terminal for programs of tests: a real pseudo-terminal with an emulator that knows what its screen shows."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import pyte

DEADLINE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
"""A screen to which nothing was written for so long is drawn to its end."""


class Terminal:
    """Runs `command` in a terminal of `columns` by `lines`, within a ``with``."""

    def __init__(
        self,
        command: Sequence[str],
        columns: int = 80,
        lines: int = 40,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self._raw = bytearray()
        self._master, slave = pty.openpty()
        self.modes = termios.tcgetattr(slave)
        self._slave = slave
        self._set_size(columns, lines)
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env=inherited | {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | dict(environment or {}),
        )
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, name="terminal")
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_SECONDS)
        self._ended.set()
        self._reader.join(DEADLINE_SECONDS)
        os.close(self._slave)
        os.close(self._master)

    @property
    def raw(self) -> bytes:
        """Everything that was written so far."""
        with self._changed:
            return bytes(self._raw)

    @property
    def text(self) -> str:
        """What the screen shows now."""
        with self._changed:
            return "\n".join(line.rstrip() for line in self._screen.display)

    def wait_for(self, condition: Callable[[str], bool], seconds: float = DEADLINE_SECONDS) -> str:
        """Wait until `condition` holds of the text of a screen that is drawn to its end; that text."""
        deadline = time.monotonic() + seconds
        while True:
            with self._changed:
                drawn = not self._changed.wait(_PAUSE_SECONDS)
            text = self.text
            if drawn and condition(text):
                return text
            assert time.monotonic() < deadline, f"not within {seconds} s; the screen shows:\n{text}"

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._master, keys)

    def resize(self, columns: int, lines: int) -> None:
        """Change the window's size."""
        with self._changed:
            self._screen.resize(lines, columns)
            self._screen.erase_in_display(2)
        self._set_size(columns, lines)

    def wait_for_end(self, seconds: float = DEADLINE_SECONDS) -> int:
        """The exit code, once the process has ended and all it wrote was read."""
        code = self.process.wait(seconds)
        self._ended.set()
        self._reader.join(seconds)
        return code

    def modes_now(self) -> list[object]:
        """How the terminal is set."""
        return termios.tcgetattr(self._slave)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._master], [], [], 0.05)
            if ready:
                data = os.read(self._master, 65536)
                with self._changed:
                    self._raw += data
                    self._stream.feed(data)
                    self._changed.notify_all()
            elif self._ended.is_set():
                return


__all__ = ["DEADLINE_SECONDS", "Terminal"]
