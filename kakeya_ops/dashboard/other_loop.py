"""An ASGI app on an event loop and a thread of its own, started by its first request.

What the app does, its import and the making of its pages included, never holds up the loop that serves it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

OpenApp = Callable[[], AbstractAsyncContextManager[ASGIApp]]
"""Makes the app, on its own loop, for as long as the context is open."""

_NOTED = frozenset(["app", "router", "endpoint", "path_params", "route", "state"])
"""What the routers around this app have noted for themselves."""
_JOIN_SECONDS = 5.0

_logger = logging.getLogger(__name__)


class OtherLoop:
    """An ASGI app that passes everything on to the app that `open_app` makes in another thread."""

    def __init__(self, open_app: OpenApp, name: str) -> None:
        self._open_app = open_app
        self._lock = threading.Lock()
        self._ready: Future[tuple[asyncio.AbstractEventLoop, ASGIApp]] = Future()
        # All requests wait for the same: one that is given up must not cancel it for the others.
        self._ready.set_running_or_notify_cancel()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ended: asyncio.Event | None = None
        self._closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Raises what the app raised when it was made."""
        self._start()
        loop, app = await asyncio.wrap_future(self._ready)
        here = asyncio.get_running_loop()
        said = {name: value for name, value in scope.items() if name not in _NOTED}
        call = app(said | {"state": dict(scope.get("state", {}))}, _on(here, receive), _on(here, send))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_as_coroutine(call), loop))

    def close(self) -> None:
        """End the app and its thread; requests that come later fail. May be called again."""
        with self._lock:
            self._closed = True
            ended, self._ended = self._ended, None
        if ended is not None:
            loop, _ = self._ready.result()
            loop.call_soon_threadsafe(ended.set)
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    @property
    def started(self) -> bool:
        """Whether anybody has asked for the app yet."""
        return self._thread.ident is not None

    def _start(self) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the app has ended")
            if not self.started:
                self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # whoever waits for the app has to know
            _logger.exception("%s has ended", self._thread.name)
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        ended = asyncio.Event()
        async with self._open_app() as app:
            with self._lock:
                if self._closed:
                    raise RuntimeError("the app has ended")
                self._ready.set_result((asyncio.get_running_loop(), app))
                self._ended = ended
            await ended.wait()


def _on(loop: asyncio.AbstractEventLoop, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """`function`, to be awaited on another loop than its own, which is `loop`."""

    async def call(*arguments: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(_as_coroutine(function(*arguments)), loop)
        return await asyncio.wrap_future(future)

    return call


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


__all__ = ["OpenApp", "OtherLoop"]
