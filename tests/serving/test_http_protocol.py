"""Request heads that are too large, too slow or no HTTP at all cost the server nothing and get a proper answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kakeya_ops.serving import http_protocol
from kakeya_ops.serving.http_protocol import HEAD_BYTES
from kakeya_ops.serving.server import Server, Site, address_of, bind


async def _count(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    listener = bind("127.0.0.1", 0)
    address = address_of(listener)
    server = Server([Site("count", Starlette(routes=[Route("/", _count, methods=["POST"])]), [listener])])
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(10)
    yield address
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


def _talk(address: tuple[str, int], *pieces: bytes) -> bytes:
    """What the server says until it hangs up; it may do so before everything is sent."""
    with closing(socket.create_connection(address, timeout=10)) as connection:
        answer = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while data := connection.recv(65536):
                answer += data
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer


def test_a_body_larger_than_a_head_may_be_is_fine(address: tuple[str, int]) -> None:
    size = 4 * HEAD_BYTES
    head = f"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n".encode()
    assert _talk(address, head, b"x" * size).endswith(str(size).encode())


@pytest.mark.parametrize(
    "flood",
    [
        [b"POST / HTTP/1.1\r\nX: ", *[b"x" * 65536] * 64],
        [b"POST / HTTP/1.1\r\n", *[b"X: " + b"x" * 1000 + b"\r\n"] * 4096],
        [b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", *[b"e" * 65536] * 64],
        [b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", *[b"T: " + b"x" * 1000 + b"\r\n"] * 4096],
    ],
    ids=["one header", "many headers", "chunk extension", "trailers"],
)
def test_a_flood_that_is_no_body_is_cut_off(address: tuple[str, int], flood: list[bytes]) -> None:
    answer = _talk(address, *flood)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


def test_what_is_no_http_is_told_so_in_the_form_of_the_api(address: tuple[str, int]) -> None:
    head, _, body = _talk(address, b"\x16\x03\x01 hello\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_a_head_that_never_ends_is_given_up(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    assert _talk(address, b"POST / HTTP/1.1\r\nX: ") == b""
