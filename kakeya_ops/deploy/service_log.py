"""The service's own log on the host: its tail, and what is added to it, without secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from kakeya_ops.deploy.redact import redact
from kakeya_ops.errors import KakeyaError
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.runner import Runner
from kakeya_ops.secret import Secret

TAIL_LINES = 20
_FOLLOW_SECONDS = 0.5
_MOST_BYTES = 1024 * 1024
"""How much of what was added is taken at once; a service that writes faster is not read by people."""


def tail_log(runner: Runner, places: Places, key: Secret | None, lines: int = TAIL_LINES) -> str:
    """The last `lines` of the log; why there are none, when they cannot be read. Never raises `KakeyaError`."""
    try:
        result = runner.run(["tail", "-n", str(lines), places.log])
    except KakeyaError as error:
        return f"(the log cannot be read: {error.message})"
    if result.status != 0:
        return "(the service has written no log)"
    return redact(result.text.rstrip("\n"), key)


class LogFollower:
    """Tells what is added to a log by asking for it again and again: a lost connection loses no line.

    A log that became shorter was emptied or begun anew, and is told from its beginning.
    """

    def __init__(
        self, runner: Runner, places: Places, key: Secret | None, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._runner = runner
        self._log = places.log
        self._places = places
        self._key = key
        self._pause = pause

    def lines(self, last: int) -> Iterator[str]:
        """The `last` lines that are there, and then every line that is added. Raises `RemoteError`."""
        stat = self._runner.stat(self._log)
        offset = stat.size_bytes if stat else 0
        yield from tail_log(self._runner, self._places, self._key, last).split("\n")
        rest = b""
        while True:
            self._pause(_FOLLOW_SECONDS)
            stat = self._runner.stat(self._log)
            size = stat.size_bytes if stat else 0
            if size < offset:
                offset, rest = 0, b""
            if size == offset:
                continue
            added = self._read(offset)
            offset += len(added)
            *whole, rest = (rest + added).split(b"\n")
            for line in whole:
                yield redact(line.decode("utf-8", "replace"), self._key)

    def _read(self, offset: int) -> bytes:
        command = 'tail -c "+$1" "$2" | head -c "$3"'
        argv = ["/bin/sh", "-c", command, "sh", str(offset + 1), self._log, str(_MOST_BYTES)]
        return self._runner.run(argv, check=True).stdout


__all__ = ["TAIL_LINES", "LogFollower", "tail_log"]
