"""What this machine does without Kakeya: a plain TCP socket on loopback, and copying memory."""

from __future__ import annotations

import socket
import statistics
import threading
import time

import numpy as np

_LOOPBACK = "127.0.0.1"
_BUFFER_BYTES = 4 * 1024 * 1024
_LIMIT_SECONDS = 60.0
_REPEATS = 5


def loopback_bytes_per_second(count: int, repeats: int = _REPEATS) -> float:
    """Median rate at which `count` bytes pass a TCP connection between two threads, into memory that was written to
    before. Raises `OSError`.
    """
    sent = np.full(count, 7, np.uint8).data
    room = np.full(count, 1, np.uint8).data
    return count / statistics.median(_pass_once(sent, room) for _ in range(repeats))


def copy_seconds(count: int, repeats: int = _REPEATS) -> float:
    """Median seconds to copy `count` bytes within memory that was written to before."""
    source, target = np.full(count, 7, np.uint8), np.full(count, 1, np.uint8)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        target[:] = source
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _pass_once(sent: memoryview, room: memoryview) -> float:
    with socket.create_server((_LOOPBACK, 0)) as server:
        server.settimeout(_LIMIT_SECONDS)
        sender = threading.Thread(target=_send, args=(server.getsockname(), sent), name="bench-raw")
        sender.start()
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            connection.settimeout(_LIMIT_SECONDS)
            seconds = _receive(connection, room)
        sender.join()
    return seconds


def _receive(connection: socket.socket, room: memoryview) -> float:
    began, got = time.perf_counter(), 0
    while got < len(room):
        count = connection.recv_into(room[got:])
        if not count:
            raise ConnectionError("the sender of the raw measurement has gone")
        got += count
    return time.perf_counter() - began


def _send(address: tuple[str, int], sent: memoryview) -> None:
    with socket.create_connection(address, timeout=_LIMIT_SECONDS) as connection:
        connection.sendall(sent)


__all__ = ["copy_seconds", "loopback_bytes_per_second"]
