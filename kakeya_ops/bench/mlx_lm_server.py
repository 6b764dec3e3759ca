"""``mlx_lm.server`` as a process of its own on this machine, for as long as it is compared with."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import httpx
import psutil

from kakeya_ops.bench.streams import StreamServer
from kakeya_ops.errors import EnvironmentFault, InputError, RefusedError
from kakeya_ops.units import render_bytes

MODEL = "default_model"
"""Its name for the model that it was started with."""
_LOOPBACK = "127.0.0.1"
_START_SECONDS = 600.0
_END_SECONDS = 20.0
_POLL_SECONDS = 0.1
_ROOM = 1.2
"""Times the weights that must be free: a machine that swaps measures its disk."""
_SHOWN_BYTES = 2000


def check_room(
    model: Path, available_bytes: Callable[[], int] = lambda: int(psutil.virtual_memory().available)
) -> None:
    """Raise `InputError` where there is no such model or no mlx-lm here, `RefusedError` where it would not fit beside
    what is running.
    """
    if importlib.util.find_spec("mlx_lm") is None:
        raise InputError("mlx-lm is not installed beside kakeya, so there is nothing to compare with")
    if not (model / "config.json").is_file():
        raise InputError(f"{model} holds no model", hint="compare on a machine that has the fleet's model, the head's")
    needed = round(_ROOM * sum(path.stat().st_size for path in model.glob("*.safetensors")))
    if (available := available_bytes()) < needed:
        raise RefusedError(
            f"mlx-lm's server needs about {render_bytes(needed)} beside the head, {render_bytes(available)} are free",
            hint="compare with a smaller model, or on a machine with more memory",
        )


@contextlib.contextmanager
def mlx_lm_server(model: Path, options: Sequence[str] = ()) -> Iterator[StreamServer]:
    """The server with `model` and further `options`, on a free port of loopback; ended with the block.

    Raises `EnvironmentFault` if it does not come up.
    """
    port = _free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--host", _LOOPBACK]
    server = StreamServer(f"http://{_LOOPBACK}:{port}", MODEL)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--log-level", "WARNING", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_ready(server, process, lambda: _tail(log))
            yield server
        finally:
            _end(process)


def _wait_ready(server: StreamServer, process: subprocess.Popen[bytes], said: Callable[[], str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not _answers(server):
        if process.poll() is not None:
            raise EnvironmentFault(f"mlx-lm's server ended with code {process.returncode}: {said()}")
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"mlx-lm's server did not answer within {_START_SECONDS:.0f} s: {said()}")
        time.sleep(_POLL_SECONDS)


def _answers(server: StreamServer) -> bool:
    try:
        return httpx.get(f"{server.url}/health", timeout=5, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return log.read().decode("utf-8", "replace")[-_SHOWN_BYTES:].strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


__all__ = ["MODEL", "check_room", "mlx_lm_server"]
