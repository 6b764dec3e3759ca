"""The lock of a host: a folder, because making one either works or tells that it is there, and a note inside it."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from kakeya_ops.deploy.errors import LockHeld
from kakeya_ops.errors import KakeyaError
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.runner import Runner
from kakeya_ops.units import render_seconds

NOTE = "owner.json"
# Whoever cannot write down who, because the disk is full, has not taken it.
_TAKE = """
umask 077
mkdir -p -m 700 "$1" && mkdir -m 700 "$2" || exit
cat > "$2/.$3" && mv -f "$2/.$3" "$2/$3" || { rm -rf -- "$2"; exit 1; }
"""
_RELEASE = 'case $(cat "$1/$2" 2>/dev/null) in *"\\"$3\\""*) rm -rf -- "$1" ;; esac'
LONG_SECONDS = 3600.0
"""No deploy takes longer, unless it copies a model; a lock that is older is looked at with suspicion."""


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: person, machine and process, since when (Unix time), and what for."""

    who: str
    machine: str
    process: int
    since: float
    why: str
    token: str

    @classmethod
    def here(cls, why: str) -> Holder:
        """This process."""
        return cls(getpass.getuser(), socket.gethostname(), os.getpid(), time.time(), why, secrets.token_hex(8))

    @classmethod
    def parse(cls, note: bytes) -> Holder | None:
        """The holder who wrote `note`; None for anything that is none."""
        try:
            holder = cls(**json.loads(note))
            # What was written by another version, or by hand, may hold anything.
            return replace(holder, since=float(holder.since), process=int(holder.process))
        except (ValueError, TypeError, RecursionError):
            return None

    def __str__(self) -> str:
        age = render_seconds(max(time.time() - self.since, 0))
        return f"{self.who} on {self.machine} (process {self.process}, for {age}, {self.why})"

    @property
    def stale(self) -> str | None:
        """Why the lock looks abandoned; None when it does not."""
        if self.machine == socket.gethostname() and not _is_alive(self.process):
            return f"process {self.process} on this machine has ended"
        if time.time() - self.since > LONG_SECONDS:
            return "it is older than an hour; ask before you break it"
        return None


def read_lock(runner: Runner, places: Places) -> Holder | str | None:
    """Who holds the lock: a `Holder`, words where the note says nothing, None when nobody does."""
    note = runner.read(f"{places.lock}/{NOTE}")
    if note is None:
        return None if runner.stat(places.lock) is None else "somebody who left no note"
    return Holder.parse(note) or "somebody whose note cannot be read"


@contextlib.contextmanager
def holding(runner: Runner, places: Places, host: str, why: str) -> Iterator[Holder]:
    """The lock of `host` is held within it. Raises `LockHeld`; never waits."""
    holder = take_lock(runner, places, host, why)
    try:
        yield holder
    finally:
        # What went wrong before says more; a lock that is left is explained to whoever meets it.
        with contextlib.suppress(KakeyaError):
            release_lock(runner, places, holder)


def take_lock(runner: Runner, places: Places, host: str, why: str) -> Holder:
    """Take the lock. Raises `LockHeld` with who has it, since when and why."""
    holder = Holder.here(why)
    note = json.dumps(asdict(holder)).encode()
    argv = ("/bin/sh", "-c", _TAKE, "sh", places.root, places.lock, NOTE)
    if runner.run(argv, input=note).status != 0:
        held = read_lock(runner, places)
        if held is not None:
            stale = held.stale if isinstance(held, Holder) else "whoever took it did not come to write down who"
            raise LockHeld(host, str(held), stale=stale)
        runner.run(argv, input=note, check=True)  # it was being released, or cannot be made
    return holder


def release_lock(runner: Runner, places: Places, holder: Holder) -> None:
    """Give the lock back, unless somebody has broken it and taken it meanwhile."""
    runner.run(("/bin/sh", "-c", _RELEASE, "sh", places.lock, NOTE, holder.token), check=True)


def break_lock(runner: Runner, places: Places) -> None:
    """Take the lock away from whoever holds it."""
    runner.run(["/bin/rm", "-rf", "--", places.lock], check=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


__all__ = ["LONG_SECONDS", "NOTE", "Holder", "break_lock", "holding", "read_lock", "release_lock", "take_lock"]
