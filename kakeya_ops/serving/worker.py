"""The worker: computes prefixes for heads, and keeps them."""

from __future__ import annotations

from collections.abc import Callable

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.errors import EngineDead
from kakeya_ops.inventory import Inventory
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.grace import Grace
from kakeya_ops.serving.jobs import JobBook
from kakeya_ops.serving.memory_gate import REFUSE, Admittance, check_memory
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.serving.pressure import watching_memory
from kakeya_ops.serving.refused import serve_refused
from kakeya_ops.serving.server import Server
from kakeya_ops.serving.startup import Startup, exchanging, start_up
from kakeya_ops.settings import expand_here


def serve_worker(
    inventory: Inventory, name: str | None, tell: Callable[[str], None], admittance: Admittance = REFUSE
) -> None:
    """Serve the worker called `name` until it is told to stop; `tell` is given one line when it is ready.

    Raises `KakeyaError`: what is wrong with the inventory, the port or the model, `DoesNotFit` unless `admittance` says
    otherwise, and `EngineDead` when the compute thread fails, after which only a new process can help.
    """
    startup = start_up(inventory, name, "worker")
    if refusal := check_memory(startup, admittance, tell):
        serve_refused(startup, refusal.summary, tell)
        return
    engine = load_engine(startup)
    try:
        node = make_worker(startup, engine)
        node.faults.revived = admittance.starts_again
        server = Server(startup.peer_sites(make_peer_app(node), node.counters))
        engine.on_death(lambda: server.fail(EngineDead("the compute thread has failed")))
        with exchanging(node, inventory), watching_memory(node, inventory.memory.keep_free_bytes):
            server.run(lambda: tell(f"worker {node.id} is ready at {startup.addresses}"))
    finally:
        engine.close()


def load_engine(startup: Startup, *, together: int = 1) -> Engine:
    """The inventory's model with its cache settings; `together` prompts are prefilled in turns.

    Raises `ModelDirectoryError` or `UnsupportedModel`.
    """
    cache = startup.inventory.cache
    settings = CacheSettings(block_tokens=cache.block_tokens, sink=cache.sink, window=cache.window)
    try:
        return Engine.load(expand_here(startup.inventory.model.path), settings, Admission(startup.host.queue, together))
    except BaseException:
        for listener in startup.sockets:
            listener.close()
        raise


def make_worker(startup: Startup, engine: Engine) -> Node:
    """The node around `engine`."""
    node = Node(startup.settings, BlockPool(startup.host.pool_bytes), engine.identity, engine)
    node.jobs = JobBook(engine, node.pool, node.counters, grace=Grace(startup.inventory.prefill.grace_seconds))
    return node


__all__ = ["load_engine", "make_worker", "serve_worker"]
