"""Streams of values: what changed, bounded for each reader, and an end when the server ends."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kakeya_ops.front.events import (
    MOST_LISTENERS,
    QUEUED_EVENTS,
    Broadcast,
    EventFeed,
    Listener,
    TooManyListeners,
)
from kakeya_ops.serving.server import Server, Site, address_of, bind
from waiting import wait_until

DEADLINE_SECONDS = 20.0


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await story()

    asyncio.run(bounded())


def parse(event: bytes | None) -> tuple[str, Any]:
    assert event is not None
    name, data = event.decode().removesuffix("\n\n").split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_first_all_then_what_changed() -> None:
    async def story() -> None:
        listener = Listener("t")
        for number in ("1", "1", "2"):
            listener.offer({"a": number, "b": '{"c":[1,null]}'})
        assert parse(await listener.next(5)) == ("snapshot", {"a": 1, "b": {"c": [1, None]}})
        assert parse(await listener.next(5)) == ("change", {"a": 2})
        assert await listener.next(0.01) == b": heartbeat\n\n"
        listener.end()
        assert await listener.next(5) is None

    run(story)


def test_values_are_made_once_for_each_tenant() -> None:
    async def story() -> None:
        broadcast = Broadcast(lambda: None)
        listeners = [broadcast.join(tenant, {"n": "0"}) for tenant in ("a", "b", "a")]
        made: list[str] = []

        def sections(tenant: str) -> dict[str, Any]:
            made.append(tenant)
            return {"for": tenant}

        broadcast.publish(sections)
        assert sorted(made) == ["a", "b"]
        for listener in listeners:
            await listener.next(5)
            assert parse(await listener.next(5)) == ("change", {"for": listener.tenant})

    run(story)


def test_a_slow_listener_is_let_go_and_counted_and_the_others_are_not() -> None:
    async def story() -> None:
        drops: list[int] = []
        broadcast = Broadcast(lambda: drops.append(1))
        slow, quick = broadcast.join("t", {"n": "0"}), broadcast.join("t", {"n": "0"})
        for number in range(1, QUEUED_EVENTS + 2):
            broadcast.publish(lambda tenant, n=number: {"n": n})  # type: ignore[misc]
            await quick.next(5)
        await asyncio.wait_for(slow.dropped.wait(), 5)
        assert not quick.dropped.is_set()
        broadcast.leave(slow)
        broadcast.leave(quick)
        assert (drops, len(broadcast)) == ([1], 0)

    run(story)


def test_there_are_only_so_many() -> None:
    async def story() -> None:
        broadcast = Broadcast(lambda: None)
        listeners = [broadcast.join("t", {}) for _ in range(MOST_LISTENERS)]
        with pytest.raises(TooManyListeners):
            broadcast.join("t", {})
        broadcast.leave(listeners[0])
        broadcast.join("t", {})

    run(story)


def test_who_comes_after_the_end_finds_it() -> None:
    async def story() -> None:
        broadcast = Broadcast(lambda: None)
        broadcast.close()
        listener = broadcast.join("t", {"n": "1"})
        assert parse(await listener.next(5)) == ("snapshot", {"n": 1})
        assert await listener.next(5) is None

    run(story)


class Feed:
    """A server of one stream of events."""

    def __init__(self, heartbeat_seconds: float = 5.0) -> None:
        self.drops = 0
        self.broadcast = Broadcast(self._drop)
        self._heartbeat_seconds = heartbeat_seconds
        self._listener = bind("127.0.0.1", 0)
        self.port = address_of(self._listener)[1]
        app = Starlette(routes=[Route("/", self._answer)])
        self.server = Server([Site("feed", app, [self._listener], self.broadcast.close)])
        self._ready = threading.Event()
        self.thread = threading.Thread(target=self.server.run, args=(self._ready.set,))

    def _drop(self) -> None:
        self.drops += 1

    async def _answer(self, request: Request) -> Response:
        return EventFeed(self.broadcast, self.broadcast.join("t", {"n": "0"}), self._heartbeat_seconds)

    def __enter__(self) -> Feed:
        self.thread.start()
        assert self._ready.wait(DEADLINE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()
        self.thread.join(DEADLINE_SECONDS)
        assert not self.thread.is_alive()

    def listen(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_SECONDS)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return connection


def read_until(connection: socket.socket, word: bytes) -> bytes:
    read = b""
    while word not in read:
        more = connection.recv(65536)
        assert more, read[-200:]
        read += more
    return read


def test_a_stream_has_signs_of_life() -> None:
    with Feed(heartbeat_seconds=0.02) as feed, feed.listen() as connection:
        assert b"event: snapshot" in read_until(connection, b": heartbeat")


def test_streams_end_with_the_server_at_once_and_as_they_should() -> None:
    with Feed() as feed, feed.listen() as connection:
        read_until(connection, b"snapshot")
        began = time.monotonic()
        feed.server.stop()
        read_until(connection, b"0\r\n\r\n")
        feed.thread.join(DEADLINE_SECONDS)
        assert time.monotonic() - began < 5


def test_a_client_that_goes_is_forgotten() -> None:
    with Feed() as feed:
        with feed.listen() as connection:
            read_until(connection, b"snapshot")
            assert len(feed.broadcast) == 1
        wait_until(lambda: len(feed.broadcast) == 0)
        assert feed.drops == 0


def test_a_client_that_takes_nothing_is_let_go() -> None:
    with Feed() as feed, feed.listen():
        wait_until(lambda: len(feed.broadcast) == 1)
        number = 0

        def tell() -> bool:
            nonlocal number
            number += 1
            feed.broadcast.publish(lambda tenant: {"n": number, "much": str(number) * 200_000})
            return len(feed.broadcast) == 0

        wait_until(tell)
        assert feed.drops == 1
