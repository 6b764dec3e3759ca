"""Workers in the process of the tests: the real code of a worker, into which a test can reach."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from flows.loopback import LoopbackFleet
from kakeya_ops.engine.contract import Ticket
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.inventory import load_inventory
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.serving.server import Server
from kakeya_ops.serving.startup import exchanging, start_up
from kakeya_ops.serving.worker import load_engine, make_worker
from waiting import WAIT_SECONDS

Disguise = Callable[[Engine], Any]


@contextlib.contextmanager
def worker_inside(fleet: LoopbackFleet, name: str, disguise: Disguise = lambda engine: engine) -> Iterator[Node]:
    """The worker called `name`, serving from this process. It computes with what `disguise` makes of its engine."""
    inventory = load_inventory(fleet.write_inventory(name))
    startup = start_up(inventory, name, "worker")
    engine = load_engine(startup)
    try:
        node = make_worker(startup, cast(Engine, disguise(engine)))
        server = Server(startup.peer_sites(make_peer_app(node), node.counters), drain_seconds=1)
        ready = threading.Event()
        thread = threading.Thread(target=server.run, args=(ready.set,), name=name)
        thread.start()
        try:
            assert ready.wait(WAIT_SECONDS)
            with exchanging(node, inventory):
                yield node
        finally:
            server.stop()
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
    finally:
        engine.close()


class ForeignKv:
    """An engine that computes the KV of another prompt than it was asked for, and says nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prefill(self, job: PrefillJob) -> Ticket:
        return self._engine.prefill(replace(job, tokens=job.tokens[::-1]))


__all__ = ["Disguise", "ForeignKv", "worker_inside"]
