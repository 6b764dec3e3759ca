"""A streaming completion of any OpenAI-style server, with the time at which each piece of its text came."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from kakeya_ops.errors import PeerRefused, PeerTimeout, PeerUnreachable
from kakeya_ops.verify.head_client import REQUEST_ID_HEADER

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 600.0
"""Of a server that computes a long prompt before it says anything."""
_SHOWN_BYTES = 500


@dataclass
class TimedStream:
    """One answer: when it was asked for, and when each piece of its text came, by `time.perf_counter`.

    While it is read by one thread, others may look at it.
    """

    began: float = 0.0
    ended: float | None = None
    request_id: str = ""
    arrivals: list[float] = field(default_factory=list)

    @property
    def first_seconds(self) -> float:
        """Seconds to the first piece of text. Raises `IndexError` if there was none."""
        return self.arrivals[0] - self.began

    @property
    def pieces_per_second(self) -> float | None:
        """Pieces after the first, mostly one a token, per second; None of fewer than two."""
        if len(self.arrivals) < 2 or self.arrivals[-1] <= self.arrivals[0]:
            return None
        return (len(self.arrivals) - 1) / (self.arrivals[-1] - self.arrivals[0])


@dataclass(frozen=True)
class StreamServer:
    """An OpenAI-style server at `url` and the name that it gives its model; `headers` go with every request."""

    url: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)


def encode_stream_request(model: str, request: Mapping[str, Any]) -> bytes:
    """The body of a streaming greedy completion; `request` has at least ``prompt`` and ``max_tokens``."""
    return json.dumps({"model": model, "temperature": 0, **request, "stream": True}).encode()


def read_stream(
    server: StreamServer,
    body: bytes,
    headers: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
    into: TimedStream | None = None,
) -> TimedStream:
    """Send `body` to ``/v1/completions`` and read its stream to the end, or until `stop` is set.

    Raises `PeerUnreachable`, `PeerTimeout`, or `PeerRefused` for an error in place of the stream or in it.
    """
    stream = into or TimedStream()
    timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    sent = {"Content-Type": "application/json", **server.headers, **(headers or {})}
    try:
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            stream.began = time.perf_counter()
            with client.stream("POST", f"{server.url}/v1/completions", content=body, headers=sent) as reply:
                _read(server, reply, stream, stop or threading.Event())
    except httpx.TimeoutException as error:
        raise PeerTimeout(server.url, "sent nothing for too long") from error
    except (httpx.RequestError, httpx.InvalidURL) as error:
        raise PeerUnreachable(server.url, f"the stream broke ({str(error) or type(error).__name__})") from error
    finally:
        stream.ended = time.perf_counter()
    return stream


def _read(server: StreamServer, reply: httpx.Response, stream: TimedStream, stop: threading.Event) -> None:
    if not reply.is_success:
        text = reply.read()[:_SHOWN_BYTES].decode("utf-8", "replace")
        raise PeerRefused(server.url, reply.status_code, "error", f"answered with status {reply.status_code}: {text}")
    stream.request_id = reply.headers.get(REQUEST_ID_HEADER, "")
    for text in _texts(server, reply.iter_lines()):
        if text:
            stream.arrivals.append(time.perf_counter())
        if stop.is_set():
            return


def _texts(server: StreamServer, lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise PeerRefused(server.url, 200, "error", f"its stream broke: {event['error']}")
        yield "".join(choice.get("text") or "" for choice in event.get("choices", []))


class BackgroundStream:
    """A stream read by a thread of its own until the block ends."""

    def __init__(self, server: StreamServer, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.timed = TimedStream()
        self.error: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server, body, headers), name="bench-stream")

    def __enter__(self) -> BackgroundStream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def over(self) -> bool:
        """Whether it has ended by itself."""
        return not self._thread.is_alive()

    def wait(self, enough: Callable[[TimedStream], bool], seconds: float) -> bool:
        """Wait until `enough` of it is there; False when it ended before, or `seconds` have passed."""
        deadline = time.monotonic() + seconds
        while not enough(self.timed):
            if self.over or time.monotonic() > deadline:
                return enough(self.timed)
            time.sleep(0.002)
        return True

    def _run(self, server: StreamServer, body: bytes, headers: Mapping[str, str] | None) -> None:
        try:
            read_stream(server, body, headers, stop=self._stop, into=self.timed)
        except (PeerRefused, PeerTimeout, PeerUnreachable) as error:
            self.error = error


__all__ = ["BackgroundStream", "StreamServer", "TimedStream", "encode_stream_request", "read_stream"]
