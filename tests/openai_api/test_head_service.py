"""The front over the head that a node really runs, alone and without a fleet key."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest

from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.head import HeadService, HeadSettings
from kakeya_ops.serving.neighbours import Neighbour
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.receipts import RemotePart
from kakeya_ops.units import NodeId
from openai_api.fronts import MODEL, Front, serve_app

PLACES = 4
PROMPT = "Once upon a time " * 20


class Nobody:
    """A neighbourhood without neighbours."""

    def usable(self) -> Iterable[Neighbour]:
        return ()

    def engaged(self, node: str, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, node: str, reason: str) -> None: ...

    def succeeded(self, node: str) -> None: ...

    def transferred(self, remote: RemotePart) -> None: ...


@pytest.fixture(scope="module")
def alone(engine: Engine) -> Iterator[Front]:
    node = Node(NodeSettings(NodeId("head"), "head", "home"), BlockPool(64 * 2**20), engine.identity, engine)
    service = HeadService(node, engine, Nobody(), HeadSettings(MODEL, concurrency=PLACES))
    with serve_app(make_openai_app(service, ApiSettings(default_tenant="home"))) as port:
        front = Front(cast(Any, service), port)
        yield front
        front.close()
    service.close()


def test_a_repeated_prompt_is_cached_and_says_the_same(alone: Front) -> None:
    prompt = "Never before " * 20
    first, again = (alone.complete(prompt=prompt, max_tokens=16) for _ in range(2))
    assert first.choices[0].text == again.choices[0].text
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in (first, again)]
    assert cached == [0, (len(prompt) - 1) // 64 * 64]


def test_a_prompt_that_equals_a_cached_one_with_its_answer(alone: Front) -> None:
    whole = alone.complete(prompt=PROMPT, max_tokens=80).choices[0].text
    for length in (8, 64, 79):
        assert alone.complete(prompt=PROMPT + whole[:length], max_tokens=1).choices[0].text == whole[length]


def test_the_receipt_in_the_header_is_the_one_that_is_kept(alone: Front) -> None:
    answer = alone.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
    service = cast(HeadService, alone.head)
    receipt = service.ledger.receipts.get(answer.headers["X-Request-Id"])
    assert receipt is not None
    assert receipt.digest == answer.headers["X-Kakeya-Receipt"]
    assert str(receipt.cached_tokens) == answer.headers["X-Kakeya-Cached-Tokens"]


def test_clients_that_leave_give_their_places_back(alone: Front) -> None:
    body = {"prompt": PROMPT, "max_tokens": 5000, "stream": True}
    for _ in range(3 * PLACES):
        with alone.http.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            next(answer.iter_lines())
    assert alone.complete(max_tokens=1).usage.completion_tokens == 1


def test_more_requests_than_places_are_told_to_come_back(alone: Front) -> None:
    body = {"prompt": PROMPT, "max_tokens": 5000, "stream": True}
    began = [threading.Event() for _ in range(PLACES)]
    leave = threading.Event()

    def occupy(place: threading.Event) -> None:
        with alone.http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()  # kept: httpx hangs up when it is dropped
            next(lines)
            place.set()
            assert leave.wait(20)

    clients = [threading.Thread(target=occupy, args=(place,)) for place in began]
    for client in clients:
        client.start()
    try:
        assert all(place.wait(20) for place in began)
        refused = alone.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    finally:
        leave.set()
        for client in clients:
            client.join(20)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_busy")
    assert int(refused.headers["Retry-After"]) >= 1
