"""Commands over real channels are tried in `test_runner`; here is a channel that behaves as none should."""

from __future__ import annotations

import threading
import time

from kakeya_ops.remote.channel_exchange import ChannelExchange


class Channel:
    """Sends nothing and takes nothing until it is closed."""

    def __init__(self, *, has_status: bool = False) -> None:
        self.status_event = threading.Event()
        self.closed = threading.Event()
        if has_status:
            self.status_event.set()

    def recv(self, limit: int) -> bytes:
        self.closed.wait(10)
        return b""

    recv_stderr = recv

    def sendall(self, data: bytes) -> None:
        self.closed.wait(10)
        raise OSError("Socket is closed")

    def shutdown_write(self) -> None: ...

    def close(self) -> None:
        self.closed.set()


def test_a_deadline_holds_when_nothing_moves() -> None:
    for has_status in (False, True):
        channel = Channel(has_status=has_status)
        started = time.monotonic()
        assert ChannelExchange(channel, b"input").carry_out(started + 0.2) == "timeout"
        assert time.monotonic() - started < 5
        assert channel.closed.is_set()
