"""A fleet as it may be heard of, made by hand."""

from __future__ import annotations

from typing import Any

from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.observe.state import Health
from kakeya_ops.status.asking import ApiAnswer, PeerAnswer
from kakeya_ops.status.board import Heard, Look, Told
from kakeya_ops.status.judging import Moment, judge
from kakeya_ops.status.value import FleetStatus
from kakeya_ops.wire.cards import Card, CardLink, Load, PoolUse, Role
from serving.running import simple_identity

NOW = 1000.0
"""Monotonic seconds."""
AT = 1_800_000_000.0
"""The same moment in Unix time, by every clock."""
STARTED = AT - 100
IDENTITY = simple_identity()
RUNTIME = Runtime("0.32", "0.32.2", "cpu", "x86", "2")
TEXT = """
fleet: {name: pair}
model: {path: /models/tiny}
hosts:
  head:
    role: head
    api: {bind: 127.0.0.1, port: 8080}
    endpoints: [{network: loopback, address: 127.0.0.1, port: 51051}]
  allens:
    role: worker
    endpoints: [{network: loopback, address: 127.0.0.1, port: 53051}]
"""
VAULT = """
  vault:
    role: cache
    endpoints: [{network: loopback, address: 127.0.0.1, port: 53053}]
"""


def inventory(more: str = "") -> Inventory:
    return parse_inventory((TEXT + more).encode(), "inventory.yaml")


def card(node: str, role: Role = "worker", *, identity: CacheIdentity = IDENTITY, **changes: Any) -> Card:
    values: dict[str, Any] = {
        "node": node,
        "role": role,
        "epoch": int(STARTED * 1e9),
        "instance": "ab" * 16,
        "version": "0.1.0",
        "endpoints": (),
        "identity": identity.digest,
        "identity_document": identity.to_json(),
        "runtime": RUNTIME.to_json() if role != "cache" else None,
        "load": Load(queued=0, running=1, queue_seconds=0.0),
        "prefill_tokens_per_second": 1300.0,
        "free_memory_bytes": 2**30,
        "pool": PoolUse(used_bytes=2**20, budget_bytes=2**29),
        "counters": {"jobs_finished": 2, "tokens_computed": 576},
        "issued_at": AT,
        "ttl_seconds": 15.0,
        "healthy": True,
    }
    return Card(**(values | changes))


def back(error: str | None = None) -> CardLink:
    """What a node says of the way to the head."""
    return CardLink(node="head", network="lan", error=error)


def answering(own: Card, *known: Card) -> Heard:
    """A node that has just answered."""
    answer = PeerAnswer(Health(own.healthy, own.reason), own, known)
    return Heard(peer=Look[PeerAnswer]().succeed(answer), told=Told(own, NOW, None))


def silent(error: str = "nothing listens there", told: Told | None = None, *, no_way: bool = False) -> Heard:
    """A node that cannot be asked; with `no_way` nor can its machine."""
    return Heard(peer=Look[PeerAnswer]().fail(error, no_way=no_way), told=told)


def link(error: str | None = None) -> dict[str, Any]:
    return {
        "network": "loopback",
        "address": "127.0.0.1",
        "port": 53051,
        "rtt_seconds": 0.0005,
        "bytes_per_second": 1e9,
        "last_error": error,
    }


def seen_by_head(error: str | None = None, **changes: Any) -> dict[str, Any]:
    """A node in the answer of a head's API."""
    up = error is None
    values = {"reachable": up, "usable": up, "healthy": True, "identity_match": True, "conflict": False}
    return values | {"issued_at": AT, "link": link(error)} | changes


def api(nodes: dict[str, dict[str, Any]], **summary: Any) -> ApiAnswer:
    return ApiAnswer({"node": "head", "model": "tiny"}, nodes, (), summary)


def whole(**changes: Heard) -> dict[str, Heard]:
    """A head with its worker, both as they should be, or as `changes` say."""
    head = answering(card("head", "head", counters={"remote_jobs": 2, "requests": 3, "tokens_reused": 64}))
    return {"head": with_api(head, api({"allens": seen_by_head()})), "allens": answering(card("allens")), **changes}


def with_api(heard: Heard, answer: ApiAnswer) -> Heard:
    return heard.with_look("api", Look[ApiAnswer]().succeed(answer))


def judged(heard: dict[str, Heard], more: str = "", *, later: float = 0.0) -> FleetStatus:
    return judge(inventory(more), heard, Moment(NOW + later, AT + later))
