"""The audit log of a host: a line of JSON for each action that was applied, appended on the host itself."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from kakeya_ops import __version__
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.runner import Runner

_APPEND = 'umask 077; cat >> "$1"'


@dataclass(frozen=True)
class Entry:
    """One action: what it was, its outcome, the generation before and after, the steps that were done.

    `reason` is the error that ended it, or else why the person did it. `gate` is what the memory verdict said, and the
    reason for which a person overruled it.

    `time` is Unix time by the clock of whoever acted, `seconds` how long it took.
    """

    time: float
    action: str
    outcome: str
    before: str | None
    after: str | None
    seconds: float
    steps: tuple[str, ...] = ()
    reason: str | None = None
    gate: str | None = None
    who: str = field(default_factory=lambda: f"{getpass.getuser()}@{socket.gethostname()}")
    version: str = __version__

    def line(self) -> bytes:
        """As it stands in the log."""
        return json.dumps(asdict(self), ensure_ascii=False).encode() + b"\n"


def append_entry(runner: Runner, places: Places, entry: Entry) -> None:
    """Append to the log of the host. Raises `RemoteError`."""
    runner.run(["/bin/sh", "-c", _APPEND, "sh", places.audit], input=entry.line(), check=True)


def read_history(runner: Runner, places: Places) -> Sequence[dict[str, object]]:
    """The log of the host, the oldest action first; lines that cannot be read are told as such."""
    data = runner.read(places.audit) or b""
    return [_parse(line) for line in data.split(b"\n") if line]


def _parse(line: bytes) -> dict[str, object]:
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"action": "unreadable line", "outcome": "unknown"}


__all__ = ["Entry", "append_entry", "read_history"]
