"""TLS in front of a server's HTTP protocol.

Not asyncio's own, because it ends a failed handshake without a word: here the caller gets TLS's alert, which says what
is wrong with its certificate, whoever speaks in clear gets an answer in clear, and both are counted by their reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kakeya_ops.wire.bodies import ErrorBody

if TYPE_CHECKING:
    from typing_extensions import Buffer

HANDSHAKE_SECONDS = 10.0
_LINGER_SECONDS = 2.0
"""A connection that is refused is read for so long: to hang up on what comes would take the answer with it."""
_LINGER_BYTES = 1024 * 1024
_PIECE_BYTES = 256 * 1024
"""What is encrypted, or decrypted, before it is passed on."""
_HANDSHAKE_RECORD = 0x16
"""The first byte of whoever speaks TLS; no HTTP request begins with it."""
_TOLD = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "certificate_missing",
    "TLSV1_ALERT_UNKNOWN_CA": "refused_by_caller",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "refused_by_caller",
    "SSLV3_ALERT_BAD_CERTIFICATE": "refused_by_caller",
}
_EXPIRED = frozenset({9, 10})
_STRANGERS = frozenset({2, 7, 18, 19, 20, 21})


@dataclass(frozen=True)
class TlsDoor:
    """How a server's sockets speak TLS; `refused` is told the reason of every connection that is not let in."""

    context: ssl.SSLContext
    refused: Callable[[str], None] = lambda reason: None


class TlsProtocol(asyncio.Protocol):
    """One connection. `make_inner` makes the protocol behind it, once the caller's certificate is verified."""

    def __init__(self, door: TlsDoor, make_inner: Callable[[], asyncio.Protocol]) -> None:
        self._door = door
        self._make_inner = make_inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = door.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._inner: asyncio.Protocol | None = None
        self._spoken = False
        self._left_bytes: int | None = None
        """Of what is let go by after a refusal; None while there was none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """See asyncio."""
        self._raw = transport
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HANDSHAKE_SECONDS, self._give_up)
        self._transport = _TlsTransport(transport, self._tls, self._outgoing, self._read)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                self._raw.close()
            return
        if not self._spoken and data[0] != _HANDSHAKE_RECORD:
            self._refuse("cleartext", _in_clear())
            return
        self._spoken = True
        self._incoming.write(data)
        if self._inner is None:
            self._shake_hands()
        self._read()

    def eof_received(self) -> bool | None:
        """See asyncio: what is not ended by TLS itself is cut off."""
        return None

    def pause_writing(self) -> None:
        """See asyncio."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio."""
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._timer.cancel()
        self._transport.lost = True
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._transport.flush()
            return
        except ssl.SSLError as error:
            self._refuse(_reason(error), self._outgoing.read())
            return
        self._timer.cancel()
        self._transport.flush()
        self._inner = self._make_inner()
        self._inner.connection_made(self._transport)

    def _read(self) -> None:
        """Pass on what has been decrypted, unless the inner protocol wants a pause."""
        while self._inner is not None and not self._transport.paused and not self._raw.is_closing():
            try:
                data = self._tls.read(_PIECE_BYTES)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLError:
                data = b""
            if not data:
                self._transport.close()
                return
            self._inner.data_received(data)

    def _refuse(self, reason: str, last_words: bytes) -> None:
        """Say why, and let go by what still comes, for the caller to hear it."""
        self._door.refused(reason)
        self._left_bytes = _LINGER_BYTES
        self._timer.cancel()
        self._timer = self._loop.call_later(_LINGER_SECONDS, self._raw.close)
        if last_words:
            self._raw.write(last_words)
        self._raw.write_eof()

    def _give_up(self) -> None:
        self._door.refused("silent")
        self._raw.close()


class _TlsTransport(asyncio.Transport):
    """What the inner protocol writes to: everything is encrypted at once, and buffered where it was without TLS."""

    def __init__(
        self, raw: asyncio.Transport, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO, read: Callable[[], None]
    ) -> None:
        super().__init__()
        self.paused = False
        self.lost = False
        self._raw = raw
        self._tls = tls
        self._outgoing = outgoing
        self._read = read

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view) and not self.is_closing():
            at += self._tls.write(view[at:])
            if self._outgoing.pending >= _PIECE_BYTES:
                self.flush()
        self.flush()

    def flush(self) -> None:
        """Send what has been encrypted."""
        if self._outgoing.pending and not self.lost:
            self._raw.write(self._outgoing.read())

    def close(self) -> None:
        if not self.is_closing():
            with contextlib.suppress(ssl.SSLError):  # nobody waits for the other side to say goodbye
                self._tls.unwrap()
            self.flush()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self.lost or self._raw.is_closing()

    def pause_reading(self) -> None:
        self.paused = True
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self.paused = False
        self._raw.resume_reading()
        asyncio.get_running_loop().call_soon(self._read)

    def is_reading(self) -> bool:
        return not self.paused

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls.context if name == "sslcontext" else self._raw.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        raise NotImplementedError("there is nothing but HTTP behind TLS")

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._raw.get_protocol()


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _EXPIRED:
            return "certificate_expired"
        return "certificate_foreign" if error.verify_code in _STRANGERS else "certificate"
    return _TOLD.get(error.reason or "", "tls")


def _in_clear() -> bytes:
    """The answer to whoever speaks in clear."""
    body = ErrorBody(
        code="tls_required",
        message="this port speaks TLS only, with certificates of the fleet on both sides",
        hint="give both nodes one inventory and its certificates: kakeya deploy all",
    ).encode()
    head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


__all__ = ["HANDSHAKE_SECONDS", "TlsDoor", "TlsProtocol"]
