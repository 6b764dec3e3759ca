"""The last receipts of a head in a file, so that a request can be explained after a restart.

A line of JSON for each, readable by its owner alone. It is begun anew when it has become twice as long as it has to be;
whoever reads it meanwhile sees the old file or the new one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from kakeya_ops.serving.receipts import KEPT, Receipt

_LONGEST_LINE_BYTES = 64 * 1024
_JOIN_SECONDS = 10.0

_logger = logging.getLogger(__name__)


class ReceiptFile:
    """Writes on a thread of its own, from `start` to `close`. A disk that takes nothing costs receipts, no answers."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self.path = path
        self._kept = kept
        self._waiting: queue.Queue[Receipt | None] = queue.Queue(2 * kept)
        self._thread = threading.Thread(target=self._write, name="receipts", daemon=True)
        self._lines = 0
        self._faulty = False

    def start(self) -> list[Receipt]:
        """The receipts of earlier processes, oldest first. Lines that are none are left out, and out of the file.

        A file that cannot be read is told, and left as it is.
        """
        receipts: list[Receipt] = []
        with self._tolerant():
            receipts = read_receipts(self.path, self._kept)
            self._begin_anew([_line(receipt) for receipt in receipts])
        self._thread.start()
        return receipts

    def append(self, receipt: Receipt) -> None:
        """Have `receipt` written; returns at once. One that finds too many waiting is not written."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(receipt)

    def close(self) -> None:
        """Write what waits, and end; a disk that takes nothing is not waited for longer than `_JOIN_SECONDS` twice."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_JOIN_SECONDS)
        self._thread.join(_JOIN_SECONDS)

    def _write(self) -> None:
        while receipt := self._waiting.get():
            with self._tolerant():
                self._append(_line(receipt))

    def _append(self, line: bytes) -> None:
        if self._lines >= 2 * self._kept:
            self._begin_anew(_read_lines(self.path, self._kept))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            # After a fault the file may end within a line.
            file.write(b"\n" + line if self._faulty else line)
        self._lines += 1

    def _begin_anew(self, lines: list[bytes]) -> None:
        part = self.path.with_name(self.path.name + ".part")
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(lines)
        os.replace(part, self.path)
        self._lines = len(lines)

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """Tell a fault of the disk once, and that it is over by working again."""
        try:
            yield
            self._faulty = False
        except OSError as error:
            if not self._faulty:
                _logger.warning("receipts cannot be kept in %s: %s", self.path, error.strerror)
            self._faulty = True


def read_receipts(path: Path, most: int = KEPT) -> list[Receipt]:
    """The newest `most` receipts in the file at `path`, oldest first; lines that are none are left out.

    Raises `OSError` for a file that is there and cannot be read.
    """
    receipts = []
    for line in _read_lines(path, most):
        with contextlib.suppress(ValueError, RecursionError):
            receipts.append(Receipt.from_json(json.loads(line)))
    return receipts


def _read_lines(path: Path, most: int) -> list[bytes]:
    """The last `most` lines that are whole and of a sane length; none where there is no such file."""
    lines: deque[bytes] = deque(maxlen=most)
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE_BYTES):
            if line.endswith(b"\n"):
                lines.append(line)
    return list(lines)


def _line(receipt: Receipt) -> bytes:
    return json.dumps(receipt.to_json(), separators=(",", ":")).encode("ascii") + b"\n"


__all__ = ["ReceiptFile", "read_receipts"]
