"""Values for whoever listens, as they change: bounded for each listener, and nobody waits for a slow one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MOST_LISTENERS = 64
QUEUED_EVENTS = 16
"""A listener that has so many events to take is too slow; each holds a second's changes."""
HEARTBEAT_SECONDS = 10.0

Sections = Mapping[str, Any]
"""Plain values by name. A section that has not changed is not sent again."""
Texts = Mapping[str, str]
"""Sections as JSON."""


class TooManyListeners(Exception):
    """There are as many listeners as there may be."""


class Listener:
    """One reader of one tenant's values, on the event loop that made it."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.dropped = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED_EVENTS)
        self._told: dict[str, int] = {}

    def offer(self, texts: Texts) -> None:
        """Tell it what changed of `texts`; returns at once. From any thread, one at a time."""
        name = "change" if self._told else "snapshot"
        changed = {name: text for name, text in texts.items() if self._told.get(name) != hash(text)}
        self._told |= {name: hash(text) for name, text in changed.items()}
        if changed:
            body = "{" + ",".join(f"{json.dumps(key)}:{text}" for key, text in changed.items()) + "}"
            self._call(self._put, f"event: {name}\ndata: {body}\n\n".encode())

    def end(self) -> None:
        """Let its stream end; from any thread."""
        self._call(self._put, None)

    async def next(self, wait_seconds: float) -> bytes | None:
        """The next event, a sign of life when there is none for so long, or None at the end."""
        try:
            async with asyncio.timeout(wait_seconds):
                return await self._events.get()
        except TimeoutError:
            return b": heartbeat\n\n"

    def _put(self, event: bytes | None) -> None:
        try:
            self._events.put_nowait(event)
        except asyncio.QueueFull:
            # Its client may ask anew, and gets a snapshot.
            self.dropped.set()

    def _call(self, act: Callable[[bytes | None], None], event: bytes | None) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has ended
            self._loop.call_soon_threadsafe(act, event)


class Broadcast:
    """All listeners. Thread-safe; `on_drop` is called once for each that was too slow."""

    def __init__(self, on_drop: Callable[[], None]) -> None:
        self._on_drop = on_drop
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._listeners)

    def join(self, tenant: str, first: Texts) -> Listener:
        """A new listener, on the running event loop, that is told `first`. Raises `TooManyListeners`."""
        listener = Listener(tenant)
        listener.offer(first)
        with self._lock:
            if len(self._listeners) >= MOST_LISTENERS:
                raise TooManyListeners
            self._listeners.add(listener)
            closed = self._closed
        if closed:
            listener.end()
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget `listener`."""
        with self._lock:
            self._listeners.discard(listener)
        if listener.dropped.is_set():
            self._on_drop()

    def publish(self, sections_of: Callable[[str], Sections]) -> None:
        """Offer each listener what its tenant may see, which is made once for a tenant."""
        with self._lock:
            listeners = tuple(self._listeners)
        made: dict[str, Texts] = {}
        for listener in listeners:
            if listener.tenant not in made:
                made[listener.tenant] = render(sections_of(listener.tenant))
            listener.offer(made[listener.tenant])

    def close(self) -> None:
        """End every stream, also those that are yet to come; from any thread, also more than once."""
        with self._lock:
            self._closed = True
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.end()


def render(sections: Sections) -> Texts:
    """`sections` as listeners are offered them."""
    return {name: json.dumps(value, separators=(",", ":")) for name, value in sections.items()}


class EventFeed(Response):
    """The stream of one listener, from a first `snapshot` on, until its client goes or it is ended."""

    media_type = "text/event-stream"

    def __init__(self, broadcast: Broadcast, listener: Listener, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._broadcast = broadcast
        self._listener = listener
        self._heartbeat_seconds = heartbeat_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, as an ASGI app."""
        sending = asyncio.ensure_future(self._send_all(send))
        others = [
            asyncio.ensure_future(_wait_until_gone(receive)),
            asyncio.ensure_future(self._listener.dropped.wait()),
        ]
        try:
            await asyncio.wait([sending, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *others):
                task.cancel()
            await asyncio.gather(sending, *others, return_exceptions=True)
            self._broadcast.leave(self._listener)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while event := await self._listener.next(self._heartbeat_seconds):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


__all__ = [
    "HEARTBEAT_SECONDS",
    "MOST_LISTENERS",
    "QUEUED_EVENTS",
    "Broadcast",
    "EventFeed",
    "Listener",
    "Sections",
    "Texts",
    "TooManyListeners",
    "render",
]
