"""The HTTP server of a node's process: one or more apps on sockets that are bound before anything else is begun."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_ops.errors import EnvironmentFault, KakeyaError
from kakeya_ops.serving.draining import DRAIN_SECONDS
from kakeya_ops.serving.http_protocol import BoundedProtocol
from kakeya_ops.serving.tls_protocol import TlsDoor, TlsProtocol

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection is kept; clients give theirs up before."""
_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024
"""Large enough that sender and receiver of a stream of blocks seldom wait for each other."""
_BACKLOG = 128
_MOST_CONNECTIONS = 256
_MESSAGE_BYTES = 64 * 1024
"""Of a message that comes over a websocket."""

OnReady = Callable[[], None]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """One app and the sockets that it is served on.

    `on_stop` is called, perhaps more than once, when no more requests are to be taken: it ends what would go on for
    ever, and must return at once. Only with `websockets` is the app asked for those; with `tls` nothing but TLS is
    spoken.
    """

    name: str
    app: ASGIApp
    sockets: Sequence[socket.socket] = field(default_factory=tuple)
    on_stop: Callable[[], None] = lambda: None
    websockets: bool = False
    tls: TlsDoor | None = None


def bind(address: str, port: int) -> socket.socket:
    """A socket bound to `address`, and to any free port for `port` 0; nobody can connect before it is served.

    Raises `EnvironmentFault` if that address or port cannot be had.
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise EnvironmentFault(f"{address} is no address of this machine: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        listener.bind(place)
    except OSError as error:
        listener.close()
        raise EnvironmentFault(
            f"cannot listen on {address} port {port}: {error.strerror}", hint=_hint(error)
        ) from error
    return listener


def address_of(listener: socket.socket) -> tuple[str, int]:
    """The address and the port that `listener` really has."""
    name = listener.getsockname()
    return str(name[0]), int(name[1])


class Server:
    """Serves `sites` until it is stopped. `stop` and `fail` may be called from any thread and at any time."""

    def __init__(self, sites: Sequence[Site], *, drain_seconds: int = DRAIN_SECONDS) -> None:
        self._sites = sites
        self._servers = [_Uvicorn(site, drain_seconds) for site in sites]
        self._lock = threading.Lock()
        self._failure: KakeyaError | None = None
        self._interrupted = False

    def run(self, on_ready: OnReady = lambda: None) -> None:
        """Serve until `stop`, `fail`, SIGTERM or SIGINT; requests that are being answered may end first.

        `on_ready` is called once every site takes connections. A second signal ends all at once. Raises what was
        given to `fail`, and `KeyboardInterrupt` after SIGINT.
        """
        try:
            with asyncio.Runner(loop_factory=self._servers[0].config.get_loop_factory()) as runner:
                runner.run(self._serve(on_ready))
        finally:
            for site in self._sites:
                for listener in site.sockets:
                    listener.close()
        if self._failure is not None:
            raise self._failure
        if self._interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        """Take no more requests and end `run`."""
        for server in self._servers:
            server.should_exit = True
        for site in self._sites:
            site.on_stop()

    def fail(self, error: KakeyaError) -> None:
        """Stop at once, because nothing can be answered any more; `run` raises the first `error`."""
        with self._lock:
            self._failure = self._failure or error
        for server in self._servers:
            server.end_at_once()
        for site in self._sites:
            site.on_stop()

    async def _serve(self, on_ready: OnReady) -> None:
        with self._signals(asyncio.get_running_loop()):
            pairs = zip(self._servers, self._sites, strict=True)
            ended: asyncio.Future[Any] = asyncio.gather(*(server.serve(list(site.sockets)) for server, site in pairs))
            ready: asyncio.Future[Any] = asyncio.gather(*(server.ready.wait() for server in self._servers))
            await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                on_ready()
            ready.cancel()
            await ended

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """SIGTERM and SIGINT stop the server, where signals can be received at all: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._heed, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _heed(self, number: signal.Signals) -> None:
        self._interrupted = self._interrupted or number is signal.SIGINT
        for server in self._servers:
            if server.should_exit:
                server.end_at_once()
        self.stop()


def _protocol(tls: TlsDoor | None) -> Callable[..., asyncio.Protocol]:
    """What makes the protocol of a connection."""
    if tls is None:
        return BoundedProtocol
    return lambda **options: TlsProtocol(tls, lambda: BoundedProtocol(**options))


class _Interruptible:
    """An app whose requests may be cut off when the process ends; uvicorn would take that for a failure of the app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            _logger.warning("%s %s was cut off, since the server stops", scope.get("method", "?"), scope["path"])


class _Uvicorn(uvicorn.Server):
    """Uvicorn without signal handlers and log files of its own."""

    def __init__(self, site: Site, drain_seconds: int) -> None:
        config = uvicorn.Config(
            _Interruptible(site.app),
            http=_protocol(site.tls),  # type: ignore[arg-type] # whatever makes a protocol will do
            ws="websockets-sansio" if site.websockets else "none",
            ws_max_size=_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=drain_seconds,
        )
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end_at_once(self) -> None:
        """Stop without waiting for anybody."""
        self.config.timeout_graceful_shutdown = 0
        self.force_exit = self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.ready.set()


def _hint(error: OSError) -> str | None:
    if error.errno == errno.EADDRINUSE:
        return "another program, perhaps another node, uses this port; stop it or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "the network of this address is down, or the address belongs to another host"
    if error.errno == errno.EACCES:
        return "choose a port above 1023"
    return None


__all__ = ["DRAIN_SECONDS", "KEEP_ALIVE_SECONDS", "OnReady", "Server", "Site", "address_of", "bind"]
