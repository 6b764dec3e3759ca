"""Keeps the log of a service bounded: launchd holds its file open for ever and never shortens it.

Renaming the file would not help, since the process goes on writing to what was renamed. So the process itself empties
the file that its standard error is.
"""

from __future__ import annotations

import logging
import os
import stat
import sys

LIMIT_BYTES = 16 * 1024 * 1024
_CHECK_EVERY_BYTES = 64 * 1024


class BoundedStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to standard error, and empties it when it is a file longer than `limit_bytes`; at once if it is already."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES, formatter: logging.Formatter | None = None) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(formatter)
        self._limit_bytes = limit_bytes
        self._unchecked_bytes = 0
        self._shorten()

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record`; see `logging.Handler.emit`."""
        super().emit(record)
        if self._unchecked_bytes >= min(_CHECK_EVERY_BYTES, self._limit_bytes):
            self._unchecked_bytes = 0
            self._shorten()

    def format(self, record: logging.LogRecord) -> str:
        """Format `record`; see `logging.Handler.format`."""
        text = super().format(record)
        self._unchecked_bytes += len(text)
        return text

    def _shorten(self) -> None:
        try:
            descriptor = self.stream.fileno()
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size <= self._limit_bytes:
                return
            self.flush()
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)  # a file that was not opened for appending would keep its hole
        except (OSError, ValueError):  # closed, or nothing that has a length
            return
        words = f"the log was longer than {self._limit_bytes} bytes and was begun anew"
        notice = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": words}
        self.stream.write(self.format(logging.makeLogRecord(notice)) + self.terminator)


__all__ = ["LIMIT_BYTES", "BoundedStderr"]
