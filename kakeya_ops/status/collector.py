"""Asks every node of an inventory, for a moment or for as long as somebody watches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType

from kakeya_ops.certificates import Certificates
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.memory.footprint import Footprint
from kakeya_ops.observe.node import Asker
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.peer.signed import Caller
from kakeya_ops.secret import Secret
from kakeya_ops.status.asking import ApiDoor, NodeDoor, api_endpoints
from kakeya_ops.status.board import Board, Heard, Look
from kakeya_ops.status.judging import Moment, judge
from kakeya_ops.status.life import PATIENCE_SECONDS
from kakeya_ops.status.polling import Poll, Polling, cards_of_api, cards_of_host, cards_of_peer
from kakeya_ops.status.remote_asking import HostAnswer, HostDoor, OpenRunner, wants_api, wants_ssh
from kakeya_ops.status.value import FleetStatus
from kakeya_ops.units import NodeId

PERIOD_SECONDS = 1.0
SSH_PERIOD_SECONDS = 10.0
"""launchd's word changes seldom, and reading a host runs a script on it."""
PEER_DEADLINE_SECONDS = PATIENCE_SECONDS + 0.5
"""By then a node that has not answered is told to be silent."""
SSH_DEADLINE_SECONDS = 20.0
_STOP_SECONDS = 1.0
_ASKER = NodeId("kakeya-status")


@dataclass(frozen=True)
class Sources:
    """How the fleet is asked: the fleet's key (None in a fleet without one), the API's key, and the way to hosts.

    Without `open_runner` nothing is asked over SSH. `needs` are what hosts are forecast to need in memory. Without
    `certificates` nothing is asked that wants TLS.
    """

    key: Secret | None
    api_key: Secret | None = None
    open_runner: OpenRunner | None = None
    needs: Mapping[str, Footprint] = field(default_factory=dict)
    certificates: Certificates | None = None

    @property
    def api_headers(self) -> dict[str, str]:
        """The headers that let into a head's API."""
        return {"Authorization": f"Bearer {self.api_key.reveal().decode()}"} if self.api_key else {}


class Collector:
    """Asks from entering its context to leaving it; `status` is what is known at any moment, at once."""

    def __init__(self, inventory: Inventory, sources: Sources) -> None:
        self.inventory = inventory
        self._sources = sources
        self._stop = StopFlag()
        hosts = [inventory.host(name) for name in inventory.hosts]
        self._board = Board({host.name: self._nothing_yet(host) for host in hosts})
        self._doors: list[NodeDoor | ApiDoor | HostDoor] = []
        self._polling = Polling([poll for host in hosts for poll in self._polls(host)], self._board)

    def __enter__(self) -> Collector:
        self._polling.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.stop()
        self._polling.stop(_STOP_SECONDS)
        for door in self._doors:
            door.close()

    def status(self) -> FleetStatus:
        """What is known now."""
        moment = Moment(time.monotonic(), time.time())
        return judge(self.inventory, self._board.read(), moment, self._sources.needs)

    def first_status(self) -> FleetStatus:
        """What is known once every source was asked: nodes twice, since a speed is what lies between two answers.

        Waits no longer than the deadlines; a source that has not answered by then is told as such.
        """
        self._board.wait_until(lambda heard: all(map(_asked_twice, heard.values())), PEER_DEADLINE_SECONDS)
        if self._sources.open_runner is not None:
            self._board.wait_until(lambda heard: all(map(_host_asked, heard.values())), SSH_DEADLINE_SECONDS)
        return self.status()

    def _nothing_yet(self, host: ResolvedHost) -> Heard:
        ssh = self._sources.open_runner is not None and wants_ssh(self.inventory, host.name)
        return Heard(api=Look() if wants_api(self.inventory, host) else None, ssh=Look() if ssh else None)

    def _polls(self, host: ResolvedHost) -> Iterator[Poll]:
        asker = Asker(self._sources.key, self.inventory.fleet.tenant, _ASKER)
        caller = Caller(_ASKER, time.time_ns(), "0" * 32, asker.signer, asker.key, self._sources.certificates)
        node = NodeDoor(host, caller, self._stop)
        self._doors.append(node)
        yield Poll(host.name, "peer", node.ask, PERIOD_SECONDS, partial(cards_of_peer, host.name))
        if wants_api(self.inventory, host):
            api = ApiDoor(host, api_endpoints(host), self._sources.api_headers)
            self._doors.append(api)
            yield Poll(host.name, "api", partial(api.ask, self._stop), PERIOD_SECONDS, cards_of_api)
        if self._sources.open_runner is not None and wants_ssh(self.inventory, host.name):
            door = HostDoor(self.inventory, host, asker, self._sources.open_runner)
            self._doors.append(door)
            yield Poll(host.name, "ssh", partial(self._ask_host, host.name, door), SSH_PERIOD_SECONDS, cards_of_host)

    def _ask_host(self, name: str, door: HostDoor) -> HostAnswer:
        """Ask a host, and its API through it unless that has answered from here."""
        api = self._board.read()[name].api
        answered = api is not None and api.current(time.monotonic(), PATIENCE_SECONDS) is not None
        return door.ask(None if answered else self._sources.api_headers)


def _asked_twice(heard: Heard) -> bool:
    node = heard.peer.error is not None or heard.peer.looks >= 2
    return node and (heard.api is None or heard.api.looks > 0)


def _host_asked(heard: Heard) -> bool:
    return heard.ssh is None or heard.ssh.looks > 0


__all__ = ["PEER_DEADLINE_SECONDS", "PERIOD_SECONDS", "SSH_DEADLINE_SECONDS", "Collector", "Sources"]
