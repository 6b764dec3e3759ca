"""``/v1/network`` over real HTTP: the fleet, the receipts, and nothing for those without a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS
from kakeya_ops.engine.engine import Engine
from kakeya_ops.front.network_api import network_routes
from kakeya_ops.front.observatory import observing
from kakeya_ops.inventory import Endpoint
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.fleet import Fleet
from kakeya_ops.serving.head import HeadService, HeadSettings
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.receipts import PURPOSE
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import verify_document
from openai_api.fronts import serve_app
from serving.running import DEADLINE_SECONDS, KEY, TENANT, Served, make_cache

KEYS = {"the-key-of-somebody": "somebody", "the-key-of-another": "another"}
PATHS = ["/v1/network/summary", "/v1/network/nodes", "/v1/network/prefill", "/v1/network/tokens", "/metrics"]


@dataclass
class Town:
    """A head that knows one cache peer, and a client of its API."""

    node: Node
    http: httpx.Client

    def get(self, path: str) -> dict[str, Any]:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    def complete(self, prompt: str) -> httpx.Response:
        return self.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2})


@pytest.fixture(scope="module")
def town(tiny_llama: Path) -> Iterator[Town]:
    engine = Engine.load(tiny_llama, SETTINGS)
    node = Node(NodeSettings(NodeId("head"), "head", TENANT, (KEY,)), BlockPool(2**22), engine.identity, engine)
    with Served(make_cache("store", identity=engine.identity)) as store:
        endpoint = Endpoint(network="loopback", address="127.0.0.1", port=store.port)
        exchange = Exchange(node, {NodeId("store"): [endpoint]}, period_seconds=0.02)
        exchange.start()
        fleet = Fleet(node, exchange, engine.runtime, {"head": "head", "store": "cache"})
        assert exchange.wait_until(lambda: fleet.known()[0].usable, DEADLINE_SECONDS)
        head = HeadService(node, engine, fleet, HeadSettings("tiny"))
        settings = ApiSettings(keys=ApiKeys(KEYS), default_tenant="nobody")
        try:
            with (
                observing(head, fleet, period_seconds=0.05) as observatory,
                serve_app(make_openai_app(observatory.head, settings, network_routes(observatory, settings))) as port,
            ):
                key = next(iter(KEYS))
                headers = {"Authorization": f"Bearer {key}"}
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as http:
                    yield Town(node, http)
        finally:
            exchange.stop()
            head.close()
            engine.close()


@pytest.mark.parametrize("path", [*PATHS, "/v1/network/receipts/abc"])
@pytest.mark.parametrize("key", [None, "Bearer wrong", "Basic the-key-of-somebody"])
def test_nothing_is_told_without_a_key(town: Town, path: str, key: str | None) -> None:
    headers = {"Authorization": key} if key else {}
    answer = httpx.get(f"{town.http.base_url}{path}", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_head_describes_itself_and_its_peers(town: Town) -> None:
    network = town.get("/v1/network/nodes")
    head, store = network["head"], next(node for node in network["nodes"] if node["node"] == "store")
    assert (head["node"], head["epoch"], head["model"]) == ("head", town.node.epoch, "tiny")
    assert CacheIdentity.from_json(head["identity_document"]).digest == head["identity"] == town.node.identity.digest
    assert (head["block_tokens"], head["window"], head["policy"]) == (BLOCK_TOKENS, None, "measured")
    assert (store["role"], store["usable"]) == ("cache", True)
    assert "head" not in [node["node"] for node in network["nodes"]]


def test_the_tenant_is_the_one_of_whoever_asks(town: Town) -> None:
    assert town.get("/v1/network/nodes")["head"]["tenant"] == "somebody"
    headers = {"Authorization": "Bearer the-key-of-another"}
    answer = httpx.get(f"{town.http.base_url}/v1/network/nodes", headers=headers)
    assert answer.json()["head"]["tenant"] == "another"


def test_two_nodes_with_one_id_are_told(town: Town) -> None:
    twin = make_cache("twins").card()
    rival = make_cache("twins").card().model_copy(update={"epoch": 1})
    town.node.cards.merge([twin, rival, rival.model_copy(update={"issued_at": rival.issued_at + 20})])
    [conflict] = town.get("/v1/network/nodes")["conflicts"]
    assert conflict.startswith("two nodes call themselves twins: instance ")
    assert twin.instance[:8] in conflict
    assert rival.instance[:8] in conflict


def test_a_request_shows_in_all_of_them(town: Town) -> None:
    before = town.get("/v1/network/tokens")["prompt_tokens"]
    prompt = "x" * (2 * BLOCK_TOKENS + 3)
    answer = town.complete(prompt)
    request_id = answer.headers["X-Request-Id"]
    assert town.get("/v1/network/tokens")["prompt_tokens"] == before + len(prompt)
    assert town.get("/v1/network/summary")["tokens"] == town.get("/v1/network/tokens")
    assert town.get("/v1/network/prefill")["requests"][0]["request_id"] == request_id
    assert "kakeya_tokens_computed_local_total" in town.http.get("/metrics").text


def test_a_receipt_is_the_signed_one_that_the_answer_named(town: Town) -> None:
    answer = town.complete("y" * 40)
    receipt = town.get(f"/v1/network/receipts/{answer.headers['X-Request-Id']}")
    assert receipt.pop("digest") == answer.headers["X-Kakeya-Receipt"]
    assert receipt["tenant"] == "somebody"
    verify_document([KEY], PURPOSE, receipt, receipt["mac"])


def test_a_list_ends_somewhere(town: Town) -> None:
    for _ in range(3):
        town.complete("z")
    assert 3 <= len(town.get("/v1/network/prefill")["requests"]) <= 50


@pytest.mark.parametrize("path", ["/v1/network/receipts/no-such-request", "/v1/network", "/v1/network/nothing"])
def test_what_is_not_there_is_a_404_in_openais_form(town: Town, path: str) -> None:
    answer = town.http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert town.http.post("/v1/network/nodes").status_code == 405
