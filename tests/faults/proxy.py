"""A small TCP proxy that breaks connections on purpose and always in the same way."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Direction = Literal["up", "down"]
"""``up`` is from client to target, ``down`` from target to client."""

_CHUNK_BYTES = 64 * 1024
_ARRIVAL_SECONDS = 10.0
"""So long a cut waits for what it passes on before; to sever waits less."""
_SEVERED_SECONDS = 2.0
_PIECES_PER_SECOND = 20


@dataclass(frozen=True)
class Fault:
    """What is done to the bytes of one direction of each new connection; by default nothing.

    Offsets count the bytes of that direction from the start of the connection.
    """

    cut_after_bytes: int | None = None
    """Pass so many bytes, then reset the connection."""
    drop_after_bytes: int | None = None
    """Pass so many bytes, then take in the rest and pass none of it."""
    corrupt_at_byte: int | None = None
    """Flip one bit of the byte at this offset."""
    delay_seconds: float = 0.0
    """Wait so long before the first byte is passed."""
    bytes_per_second: float | None = None
    """Pass no more than so many."""


Accept = Literal["pass", "refuse", "ignore"]
"""``refuse`` resets a new connection at once; ``ignore`` keeps it open, but reads and connects nothing."""


@dataclass(frozen=True)
class Mode:
    """How new connections are treated."""

    accept: Accept = "pass"
    up: Fault = Fault()
    down: Fault = Fault()


class FaultProxy:
    """Forwards a free port of loopback to `target`; as a context manager it is stopped at the end.

    A mode holds for the connections that are accepted after it was set; `sever` ends those that exist.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._mode = Mode()
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._passed = {"up": 0, "down": 0}
        self._accepted = 0
        self._stopping = threading.Event()
        self._start(self._accept)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()
        return str(host), int(port)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self.address[1]

    @property
    def accepted(self) -> int:
        """How many connections were accepted so far, refused ones too."""
        return self._accepted

    def passed(self, direction: Direction) -> int:
        """Bytes passed on in `direction` so far, over all connections."""
        return self._passed[direction]

    def wait_until(self, condition: Callable[[FaultProxy], bool], seconds: float = 10.0) -> bool:
        """Wait until `condition` holds, which is looked at whenever bytes pass or a connection begins or ends."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), seconds)

    def look(self) -> None:
        """Let those who wait look again."""
        self._note()

    def set(self, accept: Accept = "pass", *, up: Fault | None = None, down: Fault | None = None) -> None:
        """Change the mode of new connections; what is not given passes untouched."""
        self._mode = Mode(accept, up or Fault(), down or Fault())

    def heal(self) -> None:
        """Pass everything again."""
        self.set()

    def sever(self) -> None:
        """Reset every connection that exists."""
        self._reset_all(_SEVERED_SECONDS)

    def close(self) -> None:
        """Stop listening and end all connections and threads."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset_all(_SEVERED_SECONDS)
        for thread in tuple(self._threads):
            thread.join(3 * _ARRIVAL_SECONDS)
            assert not thread.is_alive()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reset_all(self, arrival_seconds: float) -> None:
        with self._changed:
            connections = tuple(self._open)
        for connection in connections:
            _reset(connection, arrival_seconds)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args, name="fault-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._begin(client, self._mode)
            self._note(accepted=1)

    def _begin(self, client: socket.socket, mode: Mode) -> None:
        if mode.accept == "refuse":
            _reset(client, _SEVERED_SECONDS)
            return
        self._keep(client)
        if mode.accept == "ignore":
            return
        try:
            target = socket.create_connection(self._target, timeout=5)
        except OSError:
            self._drop(client)
            return
        target.settimeout(None)
        self._keep(target)
        self._start(self._pump, "up", client, target, mode.up)
        self._start(self._pump, "down", target, client, mode.down)

    def _pump(self, direction: Direction, source: socket.socket, sink: socket.socket, fault: Fault) -> None:
        seen = 0
        piece_bytes = min(_CHUNK_BYTES, int((fault.bytes_per_second or _CHUNK_BYTES * 99) / _PIECES_PER_SECOND))
        self._stopping.wait(fault.delay_seconds)
        with contextlib.suppress(OSError):
            while data := source.recv(piece_bytes):
                kept = _spoil(data, seen, fault)
                seen += len(data)
                sink.sendall(kept)
                self._note(direction, len(kept))
                if fault.bytes_per_second:
                    self._stopping.wait(len(kept) / fault.bytes_per_second)
                if fault.cut_after_bytes is not None and seen >= fault.cut_after_bytes:
                    self._drop(source, sink)
                    return
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
                return
        self._drop(source, sink)

    def _note(self, direction: Direction | None = None, count: int = 0, accepted: int = 0) -> None:
        with self._changed:
            self._accepted += accepted
            if direction:
                self._passed[direction] += count
            self._changed.notify_all()

    def _keep(self, connection: socket.socket) -> None:
        with self._changed:
            self._open.add(connection)

    def _drop(self, *connections: socket.socket) -> None:
        for connection in connections:
            _reset(connection, _SEVERED_SECONDS if self._stopping.is_set() else _ARRIVAL_SECONDS)
        with self._changed:
            self._open.difference_update(connections)
            self._changed.notify_all()


def _spoil(data: bytes, seen: int, fault: Fault) -> bytes:
    """What of `data`, which begins at offset `seen`, is passed on."""
    limits = [limit for limit in (fault.cut_after_bytes, fault.drop_after_bytes) if limit is not None]
    kept = bytearray(data[: max(min(limits, default=seen + len(data)) - seen, 0)])
    if fault.corrupt_at_byte is not None and 0 <= fault.corrupt_at_byte - seen < len(kept):
        kept[fault.corrupt_at_byte - seen] ^= 1
    return bytes(kept)


def _reset(connection: socket.socket, arrival_seconds: float) -> None:
    """Close with RST, so that the other side sees a broken connection and not an orderly end.

    What was passed on before has arrived: a reset throws away what still waits to be sent.
    """
    deadline = time.monotonic() + arrival_seconds
    while _unsent_bytes(connection) and time.monotonic() < deadline:
        time.sleep(0.001)
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it
    connection.close()


def _unsent_bytes(connection: socket.socket) -> int:
    """Bytes that the other side has not acknowledged; 0 where that cannot be told."""
    try:
        return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except (OSError, ValueError):  # the latter of a socket that is closed
        return 0


__all__ = ["Accept", "Direction", "Fault", "FaultProxy", "Mode"]
