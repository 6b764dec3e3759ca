"""A peer that answers every request with whatever bytes a test likes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kakeya_ops.peer.connection import Endpoint

Script = Callable[["Request"], bytes]
"""From a request to all bytes of the response; empty bytes close the connection instead."""


@dataclass(frozen=True)
class Request:
    """One request as it came in; `connection` counts the connections, `index` the requests on it."""

    line: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    index: int


@dataclass
class ScriptedPeer:
    """Listens on loopback within a ``with``; `closes` makes it end every connection after so many responses."""

    script: Script
    closes: int | None = None
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> ScriptedPeer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.closed = threading.Condition()
        self.closed_count = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return Endpoint("127.0.0.1", self._listener.getsockname()[1])

    def wait_for_closed(self, count: int) -> None:
        """Wait until it has closed so many connections."""
        with self.closed:
            assert self.closed.wait_for(lambda: self.closed_count >= count, 10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection, len(self._open)), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as file:
            index = 0
            while (line := file.readline()) and index != self.closes:
                headers = {}
                while (header := file.readline().decode().strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.strip()] = value.strip()
                body = file.read(int(headers.get("Content-Length", 0)))
                request = Request(line.decode().strip(), headers, body, number, index)
                self.requests.append(request)
                answer = self.script(request)
                if not answer:
                    break
                connection.sendall(answer)
                index += 1
                if index == self.closes:
                    break
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        with self.closed:
            self.closed_count += 1
            self.closed.notify_all()


def response(body: bytes, *, status: str = "200 OK", **headers: str) -> bytes:
    """An HTTP response; header names are written with ``_`` for ``-``."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


__all__ = ["Request", "Script", "ScriptedPeer", "response"]
