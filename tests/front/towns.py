"""A head with one cache peer, its API on loopback, and clients of two tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from engine_bench import SETTINGS
from kakeya_ops.engine.engine import Engine
from kakeya_ops.front.network_api import network_routes
from kakeya_ops.front.observatory import Observatory, observing
from kakeya_ops.inventory import Endpoint
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.exchange import Exchange
from kakeya_ops.serving.fleet import Fleet, FleetSettings
from kakeya_ops.serving.head import HeadService, HeadSettings
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from openai_api.fronts import serve_app
from serving.running import DEADLINE_SECONDS, KEY, TENANT, Served, make_cache

KEYS = {"the-key-of-somebody": "somebody", "the-key-of-another": "another"}
PERIOD_SECONDS = 0.05


@dataclass
class Town:
    """The head's node, what it shows, and a client of each tenant."""

    node: Node
    service: HeadService
    observatory: Observatory
    http: httpx.Client
    another: httpx.Client

    def get(self, path: str) -> dict[str, Any]:
        answer = self.http.get(path)
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    def complete(self, prompt: str, *, client: httpx.Client | None = None, max_tokens: int = 2) -> httpx.Response:
        return (client or self.http).post("/v1/completions", json={"prompt": prompt, "max_tokens": max_tokens})


@contextmanager
def open_town(model: Path, context_tokens: int | None = None) -> Iterator[Town]:
    """A town for as long as the block runs."""
    engine = Engine.load(model, SETTINGS)
    node = Node(NodeSettings(NodeId("head"), "head", TENANT, (KEY,)), BlockPool(2**22), engine.identity, engine)
    with Served(make_cache("store", identity=engine.identity)) as store:
        endpoint = Endpoint(network="loopback", address="127.0.0.1", port=store.port)
        exchange = Exchange(node, {NodeId("store"): [endpoint]}, period_seconds=0.02)
        exchange.start()
        fleet = Fleet(node, exchange, engine.runtime, FleetSettings({"head": "head", "store": "cache"}))
        assert exchange.wait_until(lambda: fleet.known()[0].usable, DEADLINE_SECONDS)
        head = HeadService(node, engine, fleet, HeadSettings("tiny", context_tokens))
        settings = ApiSettings(keys=ApiKeys(KEYS), default_tenant="nobody")
        try:
            with (
                observing(head, fleet, period_seconds=PERIOD_SECONDS) as observatory,
                serve_app(make_openai_app(observatory.head, settings, network_routes(observatory, settings))) as port,
                client(port, 0) as http,
                client(port, 1) as another,
            ):
                yield Town(node, head, observatory, http, another)
        finally:
            exchange.stop()
            head.close()
            engine.close()


def client(port: int, tenant: int) -> httpx.Client:
    """A client with the key of the first or second tenant."""
    headers = {"Authorization": f"Bearer {[*KEYS][tenant]}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30)


__all__ = ["KEYS", "PERIOD_SECONDS", "Town", "open_town"]
