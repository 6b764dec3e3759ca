"""``kakeya serve head``: one process with an engine, a peer port for the fleet and an API port for clients."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from starlette.routing import BaseRoute

from kakeya_ops import __version__
from kakeya_ops.errors import EngineDead, InputError
from kakeya_ops.front.network_api import network_routes
from kakeya_ops.front.observatory import Observatory, observing
from kakeya_ops.front.refused_api import make_refused_api
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.inventory.sections import Api
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.keys import read_api_keys
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.audit import auditing
from kakeya_ops.serving.fleet import Fleet, FleetSettings
from kakeya_ops.serving.followups import FollowUps
from kakeya_ops.serving.head import HeadService, HeadSettings
from kakeya_ops.serving.memory_gate import REFUSE, Admittance, check_memory
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.serving.pressure import watching_memory
from kakeya_ops.serving.publishing import Publisher, PublishRules
from kakeya_ops.serving.quarantine_file import open_quarantine
from kakeya_ops.serving.receipt_file import ReceiptFile
from kakeya_ops.serving.refused import serve_refused
from kakeya_ops.serving.server import Server, Site, bind
from kakeya_ops.serving.startup import Startup, exchanging, start_up
from kakeya_ops.serving.worker import load_engine
from kakeya_ops.settings import expand_here
from kakeya_ops.wire.signing import Directive, NonceBook, body_digest, verify_directive

TOGETHER = 4
"""Prompts that the head prefills in turns, so that a short one need not wait for a long one's end."""


MakePages = Callable[[Observatory, ApiSettings], contextlib.AbstractContextManager[Sequence[BaseRoute]]]
"""Makes routes that show what is observed, and that come before the API's own, for as long as the context is open."""


@contextlib.contextmanager
def without_pages(observatory: Observatory, settings: ApiSettings) -> Iterator[Sequence[BaseRoute]]:
    """No routes beside the API's own."""
    yield ()


def serve_head(
    inventory: Inventory,
    name: str | None,
    tell: Callable[[str], None],
    admittance: Admittance = REFUSE,
    make_pages: MakePages = without_pages,
) -> None:
    """Serve the head called `name` until it is told to stop; `tell` is given one line when it is ready.

    Raises `KakeyaError`: what is wrong with the inventory, a port or the model, `DoesNotFit` unless `admittance` says
    otherwise, and `EngineDead` when the compute thread fails, after which only a new process can help.
    """
    startup = start_up(inventory, name, "head")
    with contextlib.ExitStack() as closing:
        for listener in startup.sockets:
            closing.callback(listener.close)
        api, head_settings = _api_of(startup.host), _head_settings(startup)
        api_socket = closing.enter_context(bind(api.bind, api.port))
        if refusal := check_memory(startup, admittance, tell):
            site = Site("api", make_refused_api(refusal.summary), [api_socket])
            serve_refused(startup, refusal.summary, tell, [site])
            return
        engine = load_engine(startup, together=TOGETHER)
        closing.callback(engine.close)
        node = Node(startup.settings, BlockPool(startup.host.pool_bytes), engine.identity, engine)
        node.faults.revived = admittance.starts_again
        exchange = closing.enter_context(exchanging(node, inventory))
        closing.enter_context(watching_memory(node, inventory.memory.keep_free_bytes))
        fleet_settings = _fleet_settings(inventory, node.id)
        fleet = Fleet(node, exchange, engine.runtime, fleet_settings)
        head = HeadService(node, engine, fleet, head_settings, fleet_settings.quarantine)
        closing.callback(head.close)
        publisher = Publisher(node, fleet.usable, _publish_rules(inventory))
        closing.callback(publisher.close)
        head.publish = publisher.offer
        if inventory.prefill.answers:
            follow_ups = FollowUps(engine, node, fleet.usable, publisher.offer)
            closing.callback(follow_ups.close)
            follow_ups.audit = head.auditor.consider
            head.follow_up = follow_ups.offer
        closing.enter_context(auditing(head.auditor))
        settings = _api_settings(inventory, api, node)
        closing.enter_context(keeping_receipts(head, receipts_path(inventory, node.id)))
        observatory = closing.enter_context(observing(head, fleet))
        pages = closing.enter_context(make_pages(observatory, settings))
        app = make_openai_app(observatory.head, settings, [*pages, *network_routes(observatory, settings)])
        api_site = Site("api", app, [api_socket], observatory.stop, websockets=bool(pages))
        server = Server([*startup.peer_sites(make_peer_app(node), node.counters), api_site])
        engine.on_death(lambda: server.fail(EngineDead("the compute thread has failed")))
        server.run(lambda: tell(f"head {node.id} is ready at http://{api.bind}:{api.port}"))


def receipts_path(inventory: Inventory, node: str) -> Path | None:
    """Where the receipts of the head called `node` outlive it: beside the fleet key; nowhere in a fleet without one."""
    return _beside_the_key(inventory, node, "receipts.jsonl")


def _beside_the_key(inventory: Inventory, node: str, name: str) -> Path | None:
    key_file = inventory.fleet.key_file
    return expand_here(f"{key_file}.{node}.{name}") if key_file else None


@contextlib.contextmanager
def keeping_receipts(head: HeadService, path: Path | None) -> Iterator[None]:
    """The receipts at `path` are those of `head` within it, with what earlier processes left there."""
    if path is None:
        yield
        return
    file, book = ReceiptFile(path), head.ledger.receipts
    book.restore(file.start())
    book.follow(file.append)
    try:
        yield
    finally:
        file.close()


def _api_of(host: ResolvedHost) -> Api:
    if host.api is None:
        raise InputError(f"host {host.name} has no api section: it is no head")
    return host.api


def _head_settings(startup: Startup) -> HeadSettings:
    prefill = startup.inventory.prefill
    if prefill.parity != "exact":
        raise InputError(
            f"prefill.parity {prefill.parity} is not offered: only nodes with equal arithmetic share KV",
            hint="set prefill.parity to exact",
        )
    return HeadSettings(
        model_id=startup.inventory.model.id,
        context_tokens=startup.inventory.model_serving.context,
        policy=prefill.policy,
        min_tokens=prefill.min_tokens,
        require_remote=prefill.require_remote,
        concurrency=startup.inventory.model_serving.concurrency,
        queue=startup.host.queue,
        grace_seconds=prefill.grace_seconds,
        audit=prefill.audit,
    )


def _fleet_settings(inventory: Inventory, node: str) -> FleetSettings:
    return FleetSettings(
        hosts={host: inventory.host(host).role for host in inventory.hosts},
        packs=inventory.prefill.packing == "measured",
        quarantine=open_quarantine(_beside_the_key(inventory, node, "quarantine.json")),
    )


def _publish_rules(inventory: Inventory) -> PublishRules:
    return PublishRules(inventory.cache.replicas, inventory.prefill.min_tokens)


def _api_settings(inventory: Inventory, api: Api, node: Node) -> ApiSettings:
    nonces = NonceBook(opened_at=time.time())
    keys = tuple(node.settings.keys)

    def verify(value: str, body: bytes) -> Directive:
        return verify_directive(value, keys, nonces, body_digest(body), time.time())

    return ApiSettings(
        keys=read_api_keys(expand_here(api.keys_file)) if api.keys_file else None,
        default_tenant=inventory.fleet.tenant,
        verify_directive=verify if keys else None,
        fingerprint=f"kakeya-{__version__}-{node.identity.digest[:12]}",
        cache=node.engine.settings if node.engine else None,
    )


__all__ = ["TOGETHER", "keeping_receipts", "receipts_path", "serve_head"]
