"""Uvicorn's HTTP protocol with the bounds that it lacks: on what is no body, and on the time a request's head takes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 * 1024
"""Of request line and headers; likewise of chunk extensions and trailers. httptools buffers these without end."""
HEAD_SECONDS = 30.0
"""From the connection, or the first byte of a later request, to the end of its headers."""
HANG_UP = "kakeya.hang_up"
"""The ASGI extension with which an app breaks its connection, as a fault would."""


class BoundedProtocol(HttpToolsProtocol):
    """Refuses a request whose head is too large or too slow, and answers in OpenAI's error form."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unproductive_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """See asyncio."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._forget_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._unproductive_bytes += len(data)
        super().data_received(data)
        if self._unproductive_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Parser's."""
        self._forget_head()
        self._expect_head()
        super().on_message_begin()
        self.scope["extensions"] = {HANG_UP: {"hang_up": self.transport.abort}}

    def on_headers_complete(self) -> None:
        """Parser's."""
        self._forget_head()
        self._unproductive_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Parser's."""
        self._unproductive_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Parser's."""
        self._unproductive_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, and hang up."""
        error = {"message": msg, "type": "invalid_request_error", "param": None, "code": "invalid_http"}
        body = json.dumps({"error": error}).encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        self.transport.close()

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _forget_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        self.transport.close()


__all__ = ["HANG_UP", "HEAD_BYTES", "HEAD_SECONDS", "BoundedProtocol"]
