"""The front over real HTTP, on a real engine with a tiny model that knows tools."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai
from starlette.types import ASGIApp

from kakeya_ops.engine.contract import DecodeEvent, FailedEvent, Ticket, TokenEvent
from kakeya_ops.engine.engine import Engine
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.contract import GenerateRequest, OnHeadEvent, PrefixReady
from kakeya_ops.serving.server import Server, Site, address_of, bind

MODEL = "tiny"


class LocalHead:
    """The `Head` of one engine without a fleet: it computes everything itself.

    `prefix` is what it says of each prompt's prefix, `refusal` is raised instead of taking a request, and while
    `hold_prefix` is not set no prefix is ready. With `failure` each request fails before its first token.
    """

    def __init__(self, engine: Engine) -> None:
        assert engine.context_tokens is not None
        self.model_id = MODEL
        self.text = engine.text
        self.context_tokens = engine.context_tokens
        self.vocabulary_size = engine.vocabulary_size
        self.engine = engine
        self.prefix = PrefixReady(0, "d" * 64, 0)
        self.requests: list[GenerateRequest] = []
        self.decoding = threading.Event()
        self.cancelled = threading.Event()
        self.refusal: Exception | None = None
        self.failure: Exception | None = None
        self.hold_prefix: threading.Event | None = None

    def submit(self, request: GenerateRequest, on_event: OnHeadEvent) -> Ticket:
        if self.refusal:
            raise self.refusal
        self.requests.append(request)
        announced = False

        def relay(event: DecodeEvent) -> None:
            nonlocal announced
            if self.failure:
                on_event(FailedEvent(self.failure))
                return
            if isinstance(event, TokenEvent) and not announced:
                announced = True
                if self.hold_prefix:
                    assert self.hold_prefix.wait(20)
                on_event(self.prefix)
            on_event(event)
            if isinstance(event, TokenEvent):
                self.decoding.set()

        ticket = self.engine.decode(request.decode, relay)
        return _Watched(ticket, self.cancelled)

    def healthy(self) -> bool:
        return self.engine.heartbeat().alive


@dataclass
class _Watched:
    ticket: Ticket
    cancelled: threading.Event

    def cancel(self) -> None:
        self.cancelled.set()
        self.ticket.cancel()


@dataclass
class Front:
    """A running server and ways to ask it."""

    head: LocalHead
    port: int
    key: str = "none"
    http: httpx.Client = field(init=False)
    client: openai.OpenAI = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key=self.key, max_retries=0, timeout=30
        )

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def chat(self, **parameters: Any) -> Any:
        """A short greedy chat with the openai client."""
        defaults = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        return self.client.chat.completions.create(**(defaults | parameters))  # type: ignore[call-overload]

    def complete(self, **parameters: Any) -> Any:
        """A short greedy text completion with the openai client."""
        defaults = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8}
        return self.client.completions.create(**(defaults | parameters))  # type: ignore[call-overload]

    def close(self) -> None:
        self.http.close()
        self.client.close()


Serve = Callable[..., Front]
"""``(settings, *more routes)`` to a front over the shared engine."""


def serve_front(engine: Engine, settings: ApiSettings, *more_routes: Any, key: str = "none") -> Iterator[Front]:
    """Yields a running front and stops it when it is resumed."""
    head = LocalHead(engine)
    with serve_app(make_openai_app(head, settings, more_routes)) as port:
        front = Front(head, port, key)
        yield front
        front.close()


@contextmanager
def serve_app(app: ASGIApp, *, drain_seconds: int = 5) -> Iterator[int]:
    """The port on which `app` is served meanwhile."""
    listener = bind("127.0.0.1", 0)
    server = Server([Site("api", app, [listener])], drain_seconds=drain_seconds)
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(10)
    try:
        yield address_of(listener)[1]
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()
