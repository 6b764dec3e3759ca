"""A head's quarantine in a file, so that it outlives the process: one JSON document, readable by its owner alone."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import stat
from pathlib import Path

from kakeya_ops.serving.quarantine import Quarantine, State

_MOST_BYTES = 4 * 1024 * 1024

_logger = logging.getLogger(__name__)


class QuarantineFile:
    """`kakeya_ops.serving.quarantine.Storage` at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> State:
        """What was kept; nothing where there is no file.

        One that cannot be read is told and set aside. Who was held is then not known, and every node is audited at
        its first import as ever; but nothing of what pools hold is used, because the state has a new generation.
        """
        try:
            return State.from_json(json.loads(self._read()))
        except FileNotFoundError:
            return State()
        except (OSError, ValueError, RecursionError) as error:
            said = error.strerror if isinstance(error, OSError) else type(error).__name__
            _logger.error("the quarantine in %s cannot be read (%s): nobody is held", self.path, said)
            with contextlib.suppress(OSError):
                os.replace(self.path, self.path.with_name(self.path.name + ".unreadable"))
            state = State(generation=secrets.token_hex(16))
            self.save(state)
            return state

    def save(self, state: State) -> None:
        """See `Storage.save`: whole or not at all."""
        part = self.path.with_name(self.path.name + ".part")
        try:
            part.unlink(missing_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(state.to_json(), file, indent=1)
                file.flush()
                os.fsync(descriptor)
            os.replace(part, self.path)
        except OSError as error:
            _logger.error("the quarantine cannot be kept in %s: %s", self.path, error.strerror)

    def _read(self) -> bytes:
        """The contents; what is no regular file is not read, because it might never end."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("no regular file")
            return file.read(_MOST_BYTES)


def open_quarantine(path: Path | None) -> Quarantine:
    """The quarantine that is kept at `path`; without one it lasts as long as the process."""
    if path is None:
        return Quarantine()
    file = QuarantineFile(path)
    return Quarantine(file.load(), file)


__all__ = ["QuarantineFile", "open_quarantine"]
