"""A keyless API answers to loopback names alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kakeya_ops.openai_api.hosts import LoopbackHosts, is_loopback_host


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:8080", "127.0.0.53", "[::1]:8080", "LOCALHOST"]
)
def test_loopback_names_are_known(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "192.168.0.7", "", "[::1", "a@b:x"]
)
def test_other_names_are_not(host: str) -> None:
    assert not is_loopback_host(host)


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([b"evil.example"], 403),
        ([b"127.0.0.1:1"], 204),
        ([], 204),
        ([b"localhost", b"evil.example"], 403),
        ([b"evil.example", b"localhost"], 403),
    ],
)
def test_a_page_under_another_name_is_refused(hosts: list[bytes], status: int) -> None:
    sent: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "headers": [(b"host", host) for host in hosts]}
    asyncio.run(LoopbackHosts(inner)(scope, receive, send))
    assert sent[0]["status"] == status
