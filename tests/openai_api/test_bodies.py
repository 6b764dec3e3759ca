"""What HTTP itself allows a client to get wrong, over a bare socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kakeya_ops.openai_api.settings import ApiLimits, ApiSettings
from openai_api.fronts import Front, Serve


@pytest.fixture
def brief(serve: Serve) -> Iterator[Front]:
    return serve(ApiSettings(limits=ApiLimits(body_bytes=1000, body_seconds=0.3)))


def exchange(front: Front, request: bytes) -> bytes:
    """All that the server says to `request` until it closes the connection, which it must."""
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def request(*headers: str, body: bytes = b"") -> bytes:
    lines = ["POST /v1/completions HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_a_body_that_never_ends_is_given_up(brief: Front) -> None:
    answer = exchange(brief, request("Content-Length: 500", body=b"{"))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in answer


def test_a_declared_length_beyond_the_limit_is_refused_before_it_is_read(brief: Front) -> None:
    answer = exchange(brief, request("Content-Length: 999999999999", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"request_too_large"' in answer


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: -5"],
        ["Content-Length: five"],
        ["Content-Length: 2", "Content-Length: 3"],
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "X: no chunk follows"],
    ],
    ids=["negative", "no-number", "two-lengths", "length-and-chunks", "bad-chunk"],
)
def test_a_length_that_is_none_is_refused_and_the_server_lives(brief: Front, headers: list[str]) -> None:
    answer = exchange(brief, request(*headers, "Connection: close", body=b"{}\r\n"))
    assert answer.startswith(b"HTTP/1.1 4")
    assert brief.complete(max_tokens=1).usage.completion_tokens == 1


def test_a_request_without_a_length_has_no_body(brief: Front) -> None:
    answer = exchange(brief, request("Connection: close"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_json"' in answer


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonp", "application/json; charset=utf-16"])
def test_only_json_passes(brief: Front, kind: str) -> None:
    answer = brief.http.post("/v1/completions", content=b"{}", headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]["param"]) == (415, "Content-Type")


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"']
)
def test_json_passes_under_each_of_its_names(brief: Front, kind: str) -> None:
    answer = brief.http.post("/v1/completions", content=b"{}", headers={"Content-Type": kind})
    assert answer.json()["error"]["param"] == "prompt"
