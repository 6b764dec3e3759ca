"""One host to take steps on, without a service: what is known of it, and a context for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from kakeya_ops.deploy.context import HostContext, Timing
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory
from kakeya_ops.memory.facts import parse_host
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, ModelFacts, Unknown
from kakeya_ops.remote.runner import Runner

QUICK = Timing(healthy=20.0, poll=0.05, gone=10.0, retry=0.01, retries=5, pid=5.0)


def make_inventory(model: str = "~/models/tiny", **host: Any) -> Inventory:
    """An inventory with the worker `allens` and the cache peer `store`; `host` changes the worker."""
    endpoint = {"network": "loopback", "address": "127.0.0.1", "port": 7000}
    document = {
        "fleet": {"name": "pair", "key_file": "~/.kakeya/fleet.key"},
        "model": {"id": "tiny", "path": model},
        "hosts": {
            "head": {"role": "head", "api": {}},
            "allens": {"role": "worker", "endpoints": [endpoint], "install_root": "~/kakeya root", **host},
            "store": {"role": "cache", "endpoints": [{**endpoint, "port": 7001}]},
        },
    }
    return parse_inventory(yaml.safe_dump(document).encode(), "test.yaml")


def make_state(home: Path, **facts: Any) -> HostState:
    """A host of which nothing is known but `facts`."""
    unknown = Unknown("not asked")
    nothing = HostState(
        host="allens",
        user="fluffy",
        uid=501,
        home=str(home),
        domains=(),
        macos="15.5",
        chip=unknown,
        memory=parse_host({}),
        disk_free_bytes=unknown,
        python=unknown,
        console_uid=unknown,
        jobs=(),
        disabled=unknown,
        plist=None,
        generation=None,
        previous=None,
        programs=frozenset(),
        key=None,
        identity=None,
        model=None,
        lock=None,
        health=None,
        card=unknown,
    )
    return replace(nothing, **facts)


def found_files(folder: Path, record: bytes | None) -> ModelFacts:
    """What observing the model folder on a host finds."""
    files = {
        path.relative_to(folder).as_posix(): (path.stat().st_size, int(path.stat().st_mtime))
        for path in folder.rglob("*")
        if path.is_file()
    }
    return ModelFacts(files, record)


class Notes:
    """What a context was told: lines, and the bytes of transfers as they arrived."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.arrived: list[int] = []
        self.totals: list[int] = []
        self.on_arrival: Callable[[int], None] = lambda done: None

    @contextlib.contextmanager
    def transfer(self, what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
        self.totals.append(total_bytes)
        yield self._arrive

    def _arrive(self, done_bytes: int) -> None:
        self.arrived.append(done_bytes)
        self.on_arrival(done_bytes)


def make_context(
    runner: Runner, home: Path, inventory: Inventory | None = None, notes: Notes | None = None, **facts: Any
) -> HostContext:
    """A context for `allens`, whose home folder is `home`; the install root exists."""
    inventory, notes = inventory or make_inventory(), notes or Notes()
    host: ResolvedHost = inventory.host("allens")
    places = Places.of(inventory, host, str(home))
    Path(places.root).mkdir(parents=True, exist_ok=True)
    return HostContext(
        host=host,
        runner=runner,
        places=places,
        before=make_state(home, **facts),
        tell=notes.lines.append,
        transfer=notes.transfer,
        cancelled=threading.Event(),
        timing=QUICK,
    )


__all__ = ["QUICK", "Notes", "found_files", "make_context", "make_inventory", "make_state"]
