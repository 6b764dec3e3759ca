"""A child process that measures what needs no HTTP: mlx-lm's own prefill, our engine's first token, a raw socket.

Reads one JSON request a line from stdin and writes one JSON answer a line to stdout.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any


class OwnPrefill:
    """mlx-lm's `generate_step` on the same chunks as the worker's."""

    def __init__(self, model: str) -> None:
        from mlx_lm import load

        self._model = load(model)[0]

    def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """Seconds, and seconds of processor time, for the prompt's tokens but the last."""
        import mlx.core as mx
        from mlx_lm.generate import generate_step

        marks: list[tuple[float, float]] = []
        prompt = mx.array(request["tokens"])
        steps = generate_step(
            prompt,
            self._model,
            max_tokens=1,
            prefill_step_size=request["chunk_tokens"],
            prompt_progress_callback=lambda done, total: marks.append((time.perf_counter(), time.process_time())),
        )
        for _ in steps:
            pass
        # The last mark is set when the last token is through as well; the one before it ends the last chunk.
        began, ended = marks[0], marks[-2]
        return {"seconds": ended[0] - began[0], "cpu_seconds": ended[1] - began[1]}


class EngineFirstToken:
    """Our engine, called without HTTP, text or fleet."""

    def __init__(self, model: str) -> None:
        from kakeya_ops.engine.contract import CacheSettings
        from kakeya_ops.engine.engine import Engine

        self._engine = Engine.load(Path(model), CacheSettings())

    def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """Seconds to the first token."""
        from kakeya_ops.engine.contract import DecodeRequest, TokenEvent

        first = threading.Event()
        began = time.perf_counter()
        self._engine.decode(
            DecodeRequest("bench", tuple(request["tokens"]), 1),
            lambda event: first.set() if isinstance(event, TokenEvent) else None,
        )
        first.wait(60)
        return {"seconds": time.perf_counter() - began}


class RawSender:
    """Sends over a plain TCP connection."""

    def __init__(self) -> None:
        self._bytes = b""

    def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """Connect to `port`, as soon as somebody listens there, and send `count` bytes."""
        if len(self._bytes) != request["count"]:
            self._bytes = bytes(range(256)) * (request["count"] // 256) + bytes(request["count"] % 256)
        with _connect(request["port"]) as connection:
            connection.sendall(self._bytes)
        return {}


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class RawReceiver:
    """Receives into one buffer that is there, and was written to, before the first byte."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def answer(self, request: dict[str, Any]) -> dict[str, float]:
        """Listen on `port` for `count` bytes: seconds from the connection to the last byte."""
        if len(self._buffer) != request["count"]:
            self._buffer = bytearray(b"\1") * request["count"]
        buffer = memoryview(self._buffer)
        with socket.create_server(("127.0.0.1", request["port"])) as server:
            connection, _ = server.accept()
            began = time.perf_counter()
            with connection:
                got = 0
                while got < len(buffer):
                    got += connection.recv_into(buffer[got:])
            return {"seconds": time.perf_counter() - began}


KINDS: dict[str, Any] = {"own": OwnPrefill, "engine": EngineFirstToken, "send": RawSender, "receive": RawReceiver}


def main() -> None:
    """Serve requests until stdin ends."""
    kind, *arguments = sys.argv[1:]
    worker = KINDS[kind](*arguments)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
