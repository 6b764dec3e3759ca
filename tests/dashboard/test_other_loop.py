"""An app on a loop of its own: begun by its first request, never in the way of the loop that serves it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_ops.dashboard.other_loop import OtherLoop


class Made:
    """An app that tells its thread and its request's body, and may be held."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.held = threading.Event()
        self.held.set()
        self.begun = threading.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ASGIApp]:
        self.opened += 1
        yield self.answer
        self.closed += 1

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        self.begun.set()
        assert self.held.wait(20)
        name = threading.current_thread().name
        assert "router" not in scope
        await PlainTextResponse(f"{name} {body.decode()} {scope['state']}")(scope, receive, send)


async def ask(app: ASGIApp, body: str = "hello") -> str:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        return (await client.post("/", content=body)).text


def within(act: Callable[[OtherLoop, Made], Any]) -> Made:
    made = Made()
    app = OtherLoop(made.open, "elsewhere")
    try:
        asyncio.run(act(app, made))
    finally:
        app.close()
    return made


def test_the_app_is_made_once_when_first_it_is_asked() -> None:
    async def act(app: OtherLoop, made: Made) -> None:
        assert not app.started
        assert made.opened == 0
        assert await ask(app) == "elsewhere hello {}"
        assert await asyncio.gather(*(ask(app, str(number)) for number in range(8))) == [
            f"elsewhere {number} {{}}" for number in range(8)
        ]

    made = within(act)
    assert (made.opened, made.closed) == (1, 1)


def test_an_app_that_is_busy_holds_up_nobody_else() -> None:
    async def act(app: OtherLoop, made: Made) -> None:
        made.held.clear()
        waiting = asyncio.ensure_future(ask(app))
        await asyncio.to_thread(made.begun.wait, 20)
        for _ in range(3):  # this loop goes round while the other one stands still
            await asyncio.sleep(0)
        assert not waiting.done()
        made.held.set()
        assert await waiting == "elsewhere hello {}"

    within(act)


def test_nobody_asked_nothing_is_made() -> None:
    async def act(app: OtherLoop, made: Made) -> None:
        app.close()

    assert within(act).opened == 0


def test_whoever_asks_an_app_that_cannot_be_made_is_told() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[ASGIApp]:
        raise OSError("no page")
        yield

    app = OtherLoop(broken, "broken")
    for _ in range(2):
        with pytest.raises(OSError, match="no page"):
            asyncio.run(ask(app))
    app.close()


def test_a_request_that_is_given_up_while_the_app_is_made_costs_the_others_nothing() -> None:
    allowed = threading.Event()

    @asynccontextmanager
    async def slowly() -> AsyncIterator[ASGIApp]:
        assert await asyncio.to_thread(allowed.wait, 20)
        yield PlainTextResponse("made")

    async def act() -> None:
        app = OtherLoop(slowly, "slow")
        first = asyncio.ensure_future(ask(app))
        while not app.started:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        allowed.set()
        assert await ask(app) == "made"
        app.close()

    asyncio.run(act())


def test_after_the_end_nobody_is_served() -> None:
    async def act(app: OtherLoop, made: Made) -> None:
        await ask(app)
        app.close()
        app.close()
        with pytest.raises(RuntimeError, match="has ended"):
            await ask(app)

    within(act)


def test_a_connection_that_is_given_up_is_given_up_there_too() -> None:
    gone = threading.Event()

    @asynccontextmanager
    async def open_app() -> AsyncIterator[ASGIApp]:
        async def wait(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await receive()
            finally:
                gone.set()

        yield wait

    async def never() -> Any:
        await asyncio.Event().wait()

    async def act() -> None:
        app = OtherLoop(open_app, "waiting")
        call = asyncio.ensure_future(app({"type": "websocket", "path": "/"}, never, never))
        while not app.started:
            await asyncio.sleep(0)
        await asyncio.wait([call], timeout=0.2)
        call.cancel()
        assert await asyncio.to_thread(gone.wait, 20)
        app.close()

    asyncio.run(act())
