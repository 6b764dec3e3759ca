"""One command over a channel of paramiko, with a deadline of its own and all three streams at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from kakeya_ops.remote.process import Ending
from kakeya_ops.remote.runner import OUTPUT_LIMIT_BYTES

_CHUNK_BYTES = 64 * 1024
_JOIN_SECONDS = 1.0


class ChannelExchange:
    """Feeds a command's standard input and drains what it writes, in threads: paramiko cannot wait for all at once."""

    def __init__(self, channel: Any, input: bytes) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._channel = channel
        self._overflow = threading.Event()
        tasks: tuple[Callable[[], None], ...] = (
            lambda: self._drain(channel.recv, self.stdout),
            lambda: self._drain(channel.recv_stderr, self.stderr),
            lambda: self._feed(input),
        )
        self._threads = [threading.Thread(target=task, name="ssh-exchange", daemon=True) for task in tasks]

    def carry_out(self, deadline: float) -> Ending:
        """Go on until both outputs are at their end and the status is there, or `deadline` (monotonic) is reached."""
        for thread in self._threads:
            thread.start()
        # Who feeds may wait for ever for a command that does not read; the other two end with the command.
        for thread in self._threads[:2]:
            thread.join(max(deadline - time.monotonic(), 0))
        ended = self._channel.status_event.wait(max(deadline - time.monotonic(), 0))
        draining = any(thread.is_alive() for thread in self._threads[:2])
        self._channel.close()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)
        if self._overflow.is_set():
            return "overflow"
        return "exit" if ended and not draining else "timeout"

    def _drain(self, receive: Callable[[int], bytes], sink: bytearray) -> None:
        with contextlib.suppress(OSError):
            while chunk := receive(_CHUNK_BYTES):
                sink += chunk
                if len(sink) > OUTPUT_LIMIT_BYTES:
                    self._overflow.set()
                    self._channel.close()

    def _feed(self, input: bytes) -> None:
        with contextlib.suppress(OSError):
            self._channel.sendall(input)
            self._channel.shutdown_write()


__all__ = ["ChannelExchange"]
