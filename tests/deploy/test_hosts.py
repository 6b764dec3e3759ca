"""Connections are opened once, when they are needed, and closed at the end."""

from __future__ import annotations

from pathlib import Path

from deploy.states import KEY, inventory
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.errors import EnvironmentFault, KakeyaError
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe.state import HostState
from kakeya_ops.remote.local_runner import LocalRunner


class Opened:
    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []

    def __call__(self, host: ResolvedHost) -> LocalRunner:
        if host.name == "boris":
            raise EnvironmentFault("boris: no way")
        self.opened.append(host.name)
        runner = LocalRunner(host.name)
        runner.close = lambda: self.closed.append(host.name)  # type: ignore[method-assign]
        return runner


def test_a_connection_is_opened_once_and_closed(home: Path) -> None:
    opened = Opened()
    with Hosts(inventory(), opened, KEY) as hosts:
        assert opened.opened == []
        assert hosts.runner("allens") is hosts.runner("allens")
        assert hosts.places("allens").home == str(home)
    assert (opened.opened, opened.closed) == (["allens"], ["allens"])


def test_a_host_that_cannot_be_read_has_its_error_and_the_others_their_state(home: Path) -> None:
    with Hosts(inventory(), Opened(), KEY) as hosts:
        states = hosts.observe(["allens", "boris"])
    assert isinstance(states["allens"], HostState)
    assert isinstance(states["boris"], KakeyaError)
