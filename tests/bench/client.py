"""A streaming client that notes when each piece of text came."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.secret import Secret
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, body_digest, new_nonce, sign_directive

_SILENCE_SECONDS = 300.0


@dataclass
class Stream:
    """One answer: when it was asked for, and when each piece of its text came."""

    began: float
    request_id: str = ""
    arrivals: list[float] = field(default_factory=list)

    @property
    def first_seconds(self) -> float:
        """Seconds to the first piece of text."""
        return self.arrivals[0] - self.began


def stream_completion(
    port: int,
    request: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    into: Stream | None = None,
) -> Stream:
    """Send `request` to ``/v1/completions`` and read its stream to the end, or until `stop` is set."""
    body = json.dumps({**request, "stream": True}).encode()
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_SILENCE_SECONDS)
    stream = into or Stream(0.0)
    stream.began = time.perf_counter()
    try:
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"status {reply.status}: {reply.read(500)!r}")
        stream.request_id = reply.headers.get("X-Request-Id", "")
        for text in _texts(reply):
            if text:
                stream.arrivals.append(time.perf_counter())
            if stop and stop.is_set():
                break
        return stream
    finally:
        connection.close()


def signed(request: Mapping[str, Any], modes: frozenset[str], key: Secret) -> dict[str, str]:
    """The header with which a holder of the fleet key says where the prefix of `request` must come from."""
    body = json.dumps({**request, "stream": True}).encode()
    return {DIRECTIVE_HEADER: sign_directive(key, modes, new_nonce(), body_digest(body), time.time())}


def _texts(reply: http.client.HTTPResponse) -> Iterator[str]:
    while line := reply.readline():
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise RuntimeError(f"the stream broke: {event['error']}")
        yield "".join(choice.get("text") or "" for choice in event.get("choices", []))
