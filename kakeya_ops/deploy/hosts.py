"""The hosts of a fleet and the connections to them, each opened when it is first needed and closed at the end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.observe import HostState, Outcome, observe_host, run_on
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.runner import Runner
from kakeya_ops.secret import Secret, read_fleet_key
from kakeya_ops.settings import expand_here

OpenRunner = Callable[[ResolvedHost], Runner]

PARALLEL = 16
"""Hosts that are read at once; reading one costs it nothing."""


class Hosts:
    """Thread-safe. Use it as a context, or `close` it."""

    def __init__(self, inventory: Inventory, open_runner: OpenRunner, key: Secret | None) -> None:
        self.inventory = inventory
        self.asker = Asker(key, inventory.fleet.tenant)
        self._open = open_runner
        self._lock = threading.Lock()
        self._runners: dict[str, Runner] = {}

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def runner(self, name: str) -> Runner:
        """The connection to the host called `name`. Raises `RemoteError`."""
        with self._lock:
            if name in self._runners:
                return self._runners[name]
        runner = self._open(self.inventory.host(name))
        with self._lock:
            return self._runners.setdefault(name, runner)

    def places(self, name: str) -> Places:
        """Where everything lies on the host called `name`. Raises `RemoteError`."""
        return Places.of(self.inventory, self.inventory.host(name), self.runner(name).home())

    def observe(self, names: Iterable[str]) -> dict[str, Outcome[HostState]]:
        """What the hosts are like now, all at once; a host that cannot be read has its error."""

        def look(name: str) -> HostState:
            return observe_host(self.runner(name), self.inventory, self.inventory.host(name), self.asker)

        return run_on(names, look, PARALLEL)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            runners, self._runners = list(self._runners.values()), {}
        for runner in runners:
            with contextlib.suppress(OSError):
                runner.close()


def read_key(inventory: Inventory) -> Secret | None:
    """The fleet key on this machine; None in a fleet without one. Raises `InputError`."""
    return None if inventory.fleet.key_file is None else read_fleet_key(expand_here(inventory.fleet.key_file))


__all__ = ["PARALLEL", "Hosts", "OpenRunner", "read_key"]
