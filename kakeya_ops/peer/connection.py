"""Connections to one peer: kept alive, given up in time, ended from another thread, their errors translated."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kakeya_ops.certificates import Certificates
from kakeya_ops.errors import PeerError, PeerTimeout, PeerUnreachable, TlsFailed
from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.peer.tls import refusal, secure, usable

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MOST_IDLE = 4
_IDLE_SECONDS = 30.0
"""Less than servers keep an idle connection, so that it is nearly always this side that ends one."""
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
"""Large enough that sender and receiver of a stream of blocks seldom wait for each other."""


@dataclass(frozen=True)
class Endpoint:
    """Where a peer listens; `network` is its name for people.

    It is spoken to by TLS, but for loopback and for what is said to carry clear text: `in_clear`.
    """

    address: str
    port: int
    network: str = ""
    in_clear: bool = field(default=False, compare=False)

    @property
    def tls(self) -> bool:
        """Whether nothing but TLS is spoken there."""
        return not (self.in_clear or is_loopback(self.address))

    @property
    def security(self) -> str:
        """The same as a word: ``tls`` or ``clear``."""
        return "tls" if self.tls else "clear"

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class Timeouts:
    """How long to wait: for a connection, for the reply to a small request, and within a stream for the next bytes.

    `stored_seconds` is for the reply to an upload, of which much may still be on its way when all of it is handed over.
    A stream may take as long as it likes, provided that something comes: workers send progress while they compute.
    """

    connect_seconds: float = 2.0
    reply_seconds: float = 10.0
    silence_seconds: float = 30.0
    stored_seconds: float = 60.0


DEFAULT_TIMEOUTS = Timeouts()


class CallAborted(PeerError):
    """This side gave the call up."""

    reason = "aborted"

    def __init__(self, peer: str) -> None:
        super().__init__(peer, "the call was given up")


class StopFlag:
    """Ends calls in progress from another thread, by shutting down what they wait for. Once stopped it stays so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: set[socket.socket] = set()
        self._relayed: list[StopFlag] = []
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """True after `stop`."""
        return self._stopped

    def stop(self) -> None:
        """Let every call that was given this flag fail with `CallAborted`, now or as soon as it is made."""
        with self._lock:
            self._stopped = True
            for connection in self._watched:
                _shut_down(connection)
            relayed = tuple(self._relayed)
        for other in relayed:
            other.stop()

    def relay(self, other: StopFlag) -> None:
        """From now on `stop` stops `other` too; at once if it was called already."""
        with self._lock:
            self._relayed.append(other)
            stopped = self._stopped
        if stopped:
            other.stop()

    def watch(self, connection: socket.socket) -> None:
        """From now on `stop` breaks `connection`; at once if it was called already."""
        with self._lock:
            self._watched.add(connection)
            if self._stopped:
                _shut_down(connection)

    def leave(self, connection: socket.socket) -> None:
        """The opposite of `watch`."""
        with self._lock:
            self._watched.discard(connection)


@dataclass(frozen=True)
class Call:
    """One request. `sign` makes the headers anew for each attempt, since a signature is good only once; `body` makes
    the body that belongs to them, whose length is among them if it is not bytes.
    """

    method: str
    path: str
    sign: Callable[[], Mapping[str, str]]
    body: Callable[[Mapping[str, str]], bytes | Iterable[Buffer]]
    wait_seconds: float


@dataclass(frozen=True)
class Answer:
    """The beginning of a reply: the headers that were sent, the response, not read yet, and what it comes through."""

    sent: Mapping[str, str]
    response: http.client.HTTPResponse
    link: socket.socket


class Connections:
    """Keep-alive connections to one endpoint of one peer; each is used by one call at a time. Thread-safe.

    `certificates` are this side's; without them nothing is reached that wants TLS.
    """

    def __init__(
        self, peer: str, endpoint: Endpoint, timeouts: Timeouts, certificates: Certificates | None = None
    ) -> None:
        self._peer = peer
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._certificates = certificates
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []

    @contextlib.contextmanager
    def call(self, call: Call, stop: StopFlag) -> Iterator[Answer]:
        """The answer to `call`. Its connection is kept only if it was read to the end and nothing went wrong.

        Every call of the protocol may be repeated, so one that fails because the server had closed an idle connection
        is made again on a new one. Raises `PeerError`.
        """
        connection, answer = self._open(call, stop)
        whole = False
        try:
            yield answer
            whole = answer.response.isclosed() and not answer.response.will_close
        finally:
            stop.leave(answer.link)
            if whole:
                self._keep(connection)
            else:
                answer.response.close()
                connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _open(self, call: Call, stop: StopFlag) -> tuple[_Connection, Answer]:
        with translated(self._peer, stop):
            idle = self._take_idle()
            if idle is not None:
                try:
                    return idle, _ask(idle, call, stop)
                except _BROKEN:
                    if stop.stopped:
                        raise
            fresh = self._connect()
            return fresh, _ask(fresh, call, stop)

    def _connect(self) -> _Connection:
        certificates = usable(self._peer, self._certificates) if self._endpoint.tls else None
        connection = _Connection(self._endpoint.address, self._endpoint.port, timeout=self._timeouts.connect_seconds)
        try:
            connection.connect()
            if certificates is not None:
                connection.sock = secure(connection.sock, self._peer, certificates)
        except TlsFailed:
            connection.close()
            raise
        except TimeoutError as error:
            seconds = self._timeouts.connect_seconds
            raise PeerUnreachable(self._peer, f"{self._endpoint} does not answer within {seconds:g} s") from error
        except OSError as error:
            raise PeerUnreachable(self._peer, f"{self._endpoint} cannot be reached: {_reason(error)}") from error
        return connection

    def _take_idle(self) -> _Connection | None:
        """The idle connection that was used last and still lives, if there is one."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_alive() and time.monotonic() - connection.used_at < _IDLE_SECONDS:
                return connection
            connection.close()

    def _keep(self, connection: _Connection) -> None:
        connection.used_at = time.monotonic()
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for old in surplus:
            old.close()


_BROKEN = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a connection raises that the other side has ended."""


class _Connection(http.client.HTTPConnection):
    """A connection that knows when it was used last."""

    used_at = 0.0

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)

    def is_alive(self) -> bool:
        """False if the server has closed it, or has sent what nobody asked for."""
        self.sock.setblocking(False)
        try:
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)  # TLS lets nobody peek into what it protects
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


@contextlib.contextmanager
def translated(peer: str, stop: StopFlag) -> Iterator[None]:
    """Turn what sockets and `http.client` raise into `PeerError`, or `CallAborted` when `stop` is the cause."""
    try:
        yield
    except (OSError, http.client.HTTPException, PeerUnreachable, TlsFailed) as error:
        if stop.stopped:
            raise CallAborted(peer) from error
        if isinstance(error, PeerError):
            raise
        if isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN):
            raise refusal(peer, error) from error
        if isinstance(error, TimeoutError):
            raise PeerTimeout(peer, "sent nothing for too long") from error
        raise PeerUnreachable(peer, f"the connection broke: {_reason(error)}") from error


def _ask(connection: _Connection, call: Call, stop: StopFlag) -> Answer:
    """Send `call` and read the head of the reply. `stop` goes on watching the connection, unless this fails."""
    link = connection.sock
    stop.watch(link)
    try:
        headers = call.sign()
        link.settimeout(call.wait_seconds)
        try:
            connection.request(call.method, call.path, body=call.body(headers), headers=dict(headers))
        except _BROKEN as broken:
            return Answer(headers, _early_answer(connection, broken), link)
        return Answer(headers, connection.getresponse(), link)
    except BaseException:
        stop.leave(link)
        connection.close()
        raise


def _early_answer(connection: _Connection, broken: OSError) -> http.client.HTTPResponse:
    """What a peer said before it hung up on a body that it did not want; `broken` if it said nothing."""
    try:
        return connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN):
            raise  # why it hung up
        raise broken from None


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Not that of an SSL socket, which would send in clear what another thread is just about to send.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


__all__ = [
    "DEFAULT_TIMEOUTS",
    "Answer",
    "Call",
    "CallAborted",
    "Connections",
    "Endpoint",
    "StopFlag",
    "Timeouts",
    "translated",
]
