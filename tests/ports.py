"""Ports for what is started later: no system hands them out by itself, and no other process of tests takes them.

A port that was asked of the system and let go may be somebody else's by the time a server is ready to bind it.
"""

from __future__ import annotations

import fcntl
import functools
import getpass
import itertools
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

HOST = "127.0.0.1"
FIRST = 12_000
"""Below what Linux (from 32768) and macOS (from 49152) give to whoever names no port."""
EACH = 200
LAST = 32_000


def choose_ports(count: int) -> list[int]:
    """`count` different ports of loopback that are free now and, but for strangers, stay so."""
    return list(itertools.islice(filter(_is_free, _own_ports()), count))


@functools.cache
def _own_ports() -> Iterator[int]:
    """Those of this process, again and again: it is long until one of them comes back."""
    return itertools.cycle(range(first := _reserve()[0], first + EACH))


@functools.cache
def _reserve() -> tuple[int, IO[str]]:
    """The first of the ports that are this process's until it ends, and the file that is locked as long."""
    folder = Path(tempfile.gettempdir(), f"kakeya-ports-{getpass.getuser()}")
    folder.mkdir(exist_ok=True)
    for first in range(FIRST, LAST, EACH):
        file = (folder / str(first)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
        else:
            return first, file
    raise RuntimeError("every port is another process's")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose old connections are only winding down is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


__all__ = ["choose_ports"]
