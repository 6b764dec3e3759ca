"""Asking a host over SSH: what launchd says of its service, and what its node and its API say on the spot."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kakeya_ops.errors import KakeyaError, PeerUnreachable
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.inventory.fields import is_loopback
from kakeya_ops.observe.host import observe_host
from kakeya_ops.observe.http import CURL, SECONDS, HttpRequest, base_url, read_status
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.state import HostState
from kakeya_ops.remote.runner import Runner
from kakeya_ops.status.asking import (
    NODES_PATH,
    SUMMARY_PATH,
    ApiAnswer,
    accept,
    api_endpoints,
    plain,
    read_api,
    read_document,
)

OpenRunner = Callable[[ResolvedHost], Runner]


@dataclass(frozen=True)
class HostAnswer:
    """What a host said over SSH; `api` is None where it has none, and `api_fault` where it does not answer."""

    state: HostState
    api: ApiAnswer | None = None
    api_fault: str | None = None


class HostDoor:
    """One host over SSH, connected when it is first asked. For one thread at a time."""

    def __init__(self, inventory: Inventory, host: ResolvedHost, asker: Asker, open_runner: OpenRunner) -> None:
        self._inventory = inventory
        self._host = host
        self._asker = asker
        self._open_runner = open_runner
        self._runner: Runner | None = None

    def ask(self, api_headers: Mapping[str, str] | None) -> HostAnswer:
        """What it says; with `api_headers` also what its API says there. Raises `KakeyaError`."""
        runner = self._runner = self._runner or self._open_runner(self._host)
        state = observe_host(runner, self._inventory, self._host, self._asker)
        if api_headers is None or self._host.api is None:
            return HostAnswer(state)
        try:
            return HostAnswer(state, self._ask_api(runner, api_headers))
        except KakeyaError as error:
            return HostAnswer(state, api_fault=plain(self._host.name, error))

    def close(self) -> None:
        """End the connection."""
        if self._runner is not None:
            with contextlib.suppress(OSError):
                self._runner.close()

    def _ask_api(self, runner: Runner, headers: Mapping[str, str]) -> ApiAnswer:
        endpoints = api_endpoints(self._host)
        if not endpoints:
            raise PeerUnreachable(self._host.name, "its API has no address")
        root = base_url(endpoints[0].address, endpoints[0].port)
        documents = []
        for path in (NODES_PATH, SUMMARY_PATH):
            request = HttpRequest(self._host.name, root + path, headers)
            result = runner.run(CURL, input=request.config(), timeout_seconds=3 * SECONDS)
            status = read_status(request, result.status, result.stdout)
            body = result.stdout.partition(b"\r\n\r\n")[2]
            documents.append(accept(self._host.name, status, read_document(self._host.name, status, body)))
        return read_api(self._host.name, *documents)


def wants_ssh(inventory: Inventory, name: str) -> bool:
    """Whether the host is to be asked over SSH: not one of a fleet on loopback of which the inventory tells no SSH."""
    host = inventory.hosts[name]
    named = "ssh" in host.model_fields_set or "ssh" in inventory.defaults.model_fields_set
    addresses = [end.address for end in host.endpoints] + ([host.api.bind] if host.api else [])
    return named or not all(map(is_loopback, addresses))


def wants_api(inventory: Inventory, host: ResolvedHost) -> bool:
    """Whether the host has an API that may be asked from here: the loopback of a host elsewhere is not this machine's.

    Whoever listens at the same port here is somebody else, and must not be sent the key.
    """
    return host.api is not None and not (is_loopback(host.api.bind) and wants_ssh(inventory, host.name))


__all__ = ["HostAnswer", "HostDoor", "OpenRunner", "wants_api", "wants_ssh"]
