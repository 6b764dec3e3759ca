"""A line with a round trip: TCP connections to a free port of loopback arrive at another one a little later."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CHUNK_BYTES = 64 * 1024


@contextmanager
def lagging(ports: list[int], round_trip_seconds: float) -> Iterator[list[int]]:
    """For each of `ports` another one that leads to it, half of the round trip later in each direction.

    What is under way does not wait for what is sent after it: only the delay is bounded, not the rate.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lag")
    thread.start()
    try:
        lines = [_Line(port, round_trip_seconds / 2) for port in ports]
        yield [asyncio.run_coroutine_threadsafe(line.open(), loop).result() for line in lines]
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Line:
    """One port that leads to `target`."""

    def __init__(self, target: int, seconds: float) -> None:
        self._target = target
        self._seconds = seconds

    async def open(self) -> int:
        """The port at which it listens from now on."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, under_way = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()
        sending = asyncio.create_task(self._send(under_way, writer))
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                under_way.put_nowait((loop.time() + self._seconds, data))
        under_way.put_nowait((loop.time() + self._seconds, b""))
        await sending

    async def _send(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(due - loop.time())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
