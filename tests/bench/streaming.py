"""A server of scripted streams: it says a piece whenever a test lets it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kakeya_ops.bench.streams import StreamServer

Piece = str | dict[str, Any]
Script = Callable[[dict[str, Any]], Iterator[Piece]]
"""What is said to a request; a dictionary is an event of its own."""


@contextmanager
def streaming(script: Script, status: int = 200) -> Iterator[StreamServer]:
    """A server that answers every completion with `script`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("X-Request-Id", "r1")
            self.end_headers()
            try:
                for piece in script(request):
                    event = piece if isinstance(piece, dict) else {"choices": [{"text": piece}]}
                    self.wfile.write(f": comment\n\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                pass  # the reader has heard enough

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield StreamServer(f"http://127.0.0.1:{server.server_address[1]}", "m")
        finally:
            server.shutdown()
            thread.join()
