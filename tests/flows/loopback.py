"""A fleet of real processes on loopback for the flows: every path from heads to peers goes through a fault proxy."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import yaml
from tokenizers import Tokenizer

from faults.proxy import FaultProxy
from flows.heads import Head, wait_until
from kakeya_ops.demo.fleet import LOOPBACK, Child
from kakeya_ops.kv.hashing import chain_hashes, tenant_key
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.peer.client import PeerClient, PrefillCall
from kakeya_ops.peer.connection import DEFAULT_TIMEOUTS, Endpoint, Timeouts
from kakeya_ops.peer.signed import Caller
from kakeya_ops.secret import Secret, write_fleet_key
from kakeya_ops.units import BlockHash, NodeId
from kakeya_ops.wire.bodies import PrefillRequest
from kakeya_ops.wire.cards import Card
from kakeya_ops.wire.signing import NodeSigner, new_nonce
from ports import choose_ports

_EPOCH = 1
_INSTANCE = "5e" * 16


@dataclass(frozen=True)
class Plan:
    """One node of a fleet, and in what its inventory differs from that of the others.

    `key_file` is a name in the fleet's directory; `api` are further keys of a head's api section. A node that is not
    `early` is started by the tests themselves.
    """

    role: str
    early: bool = True
    cache: Mapping[str, Any] = field(default_factory=dict)
    prefill: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    api: Mapping[str, Any] = field(default_factory=dict)
    model: Path | None = None
    key_file: str = "fleet.key"


PAIR: Mapping[str, Plan] = {"worker": Plan("worker"), "head": Plan("head")}


@dataclass(frozen=True)
class Wanted:
    """What a fleet is to be: its nodes, and sections of the inventory over the defaults of these tests."""

    nodes: Mapping[str, Plan] = field(default_factory=lambda: PAIR)
    cache: Mapping[str, Any] = field(default_factory=dict)
    prefill: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = None


class LoopbackFleet:
    """Heads, their peers and the proxies between them. Use it as a context manager."""

    def __init__(self, directory: Path, model: Path, wanted: Wanted = Wanted()) -> None:
        self.directory = directory
        self.model = model
        self.wanted = wanted
        self.plans = dict(wanted.nodes)
        self.key: Secret = write_fleet_key(directory / "fleet.key")
        self.children: dict[str, Child] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self.heads: dict[str, Head] = {}
        self.twin_ports: dict[str, int] = {}
        self._clients: dict[str, PeerClient] = {}
        self._made: list[PeerClient] = []
        self._exit = contextlib.ExitStack()
        heads = [name for name, plan in self.plans.items() if plan.role == "head"]
        ports = choose_ports(len(self.plans) + len(heads))
        self.ports = dict(zip(self.plans, ports, strict=False))
        self.api_ports = dict(zip(heads, ports[len(self.plans) :], strict=True))

    def __enter__(self) -> LoopbackFleet:
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            undo.callback(self._close_clients)
            for name in self.plans:
                self.proxies[name] = undo.enter_context(FaultProxy((LOOPBACK, self.ports[name])))
            for name, port in self.api_ports.items():
                self.heads[name] = Head(port, self.key, self.wanted.api_key)
                undo.callback(self.heads[name].close)
            early = [name for name, plan in self.plans.items() if plan.early]
            for name in early:
                self.start(name)
            for name in early:
                self.wait_ready(name)
            self._exit = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @property
    def head(self) -> Head:
        """The head called ``head``."""
        return self.heads["head"]

    def start(self, name: str) -> None:
        """Start the node called `name`."""
        self._run(name, name, self.write_inventory(name))

    def start_twin(self, name: str) -> None:
        """Start another process that calls itself `name`, on a port of its own."""
        [self.twin_ports[name]] = choose_ports(1)
        inventory = self._write_inventory(name, self.ports | self.twin_ports, f"{name}-twin")
        self._run(f"{name}-twin", name, inventory)

    def wait_ready(self, name: str) -> None:
        """Wait until the node called `name` says so."""
        child = self.children[name]

        def ready() -> bool:
            assert not child.ended_within(0), child.last_words()
            return "is ready at" in child.log.read_text()

        wait_until(ready, f"the start of {name}")

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End the node called `name`, by default as a power cut would."""
        self.children[name].signal_group(number)
        assert self.children[name].ended_within(20)

    def restart(self, name: str, **changes: Any) -> None:
        """Start the node called `name` anew, its plan changed, and wait until the heads know it."""
        if not self.children[name].ended_within(0):
            self.end(name)
        self.plans[name] = replace(self.plans[name], **changes)
        self.start(name)
        self.wait_ready(name)
        self.forget(name)
        if self.plans[name].role != "head":
            epoch = self.card(name).epoch
            wait_until(lambda: self.head.node(name).get("epoch") == epoch, f"the news of {name}'s restart")
            self.head.wait_for_peer(name)

    def heal(self, name: str) -> None:
        """Let everything through to `name` again, on new connections: the old ones may go on as they were told to."""
        self.proxies[name].heal()
        self.proxies[name].sever()

    def stop(self) -> None:
        """End everything."""
        for child in self.children.values():
            child.signal_group(signal.SIGCONT)
            child.signal_group(signal.SIGTERM)
        deadline = time.monotonic() + 15
        for child in self.children.values():
            if not child.ended_within(max(deadline - time.monotonic(), 0.1)):
                child.signal_group(signal.SIGKILL)
                child.ended_within(5)

    def peer(self, name: str, *, proxied: bool = False, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> PeerClient:
        """A new client of the peer port of `name`, for a node that is no part of the fleet but has its key."""
        node, port = NodeId("tester"), self.proxies[name].port if proxied else self.ports[name]
        caller = Caller(node, _EPOCH, _INSTANCE, NodeSigner(node, self.key, "flows", time.time), self.key)
        client = PeerClient(NodeId(name), Endpoint(LOOPBACK, port), caller, self.identity.layout, timeouts)
        self._made.append(client)
        return client

    def card(self, name: str) -> Card:
        """What the node called `name` says about itself now."""
        if name not in self._clients:
            self._clients[name] = self.peer(name)
        return self._clients[name].card()

    def counter(self, name: str, counter: str) -> float:
        """A counter of the node called `name`, now."""
        return self.card(name).counters[counter]

    def forget(self, name: str) -> None:
        """Drop the connections to `name`."""
        if client := self._clients.pop(name, None):
            client.close()

    def _close_clients(self) -> None:
        for client in self._made:
            client.close()

    @property
    def identity(self) -> CacheIdentity:
        """The cache identity of the first head."""
        if not hasattr(self, "_identity"):
            self._identity = CacheIdentity.from_json(self.head.network()["head"]["identity_document"])
        return self._identity

    def tokens(self, prompt: str) -> tuple[int, ...]:
        """The ids of a prompt's tokens."""
        tokenizer = Tokenizer.from_file(str(self.model / "tokenizer.json"))
        return tuple(tokenizer.encode(prompt, add_special_tokens=False).ids)

    def hashes(self, tokens: Sequence[int], tenant: str = "flows") -> tuple[BlockHash, ...]:
        """The names of a prompt's blocks."""
        identity = self.identity
        return chain_hashes(tokens, identity.block_tokens, identity.digest, tenant_key(self.key, tenant))

    def prefill_call(self, prompt: str, arrived: list[int]) -> PrefillCall:
        """A prefill of all whole blocks of `prompt`, for a client of `peer`; their numbers are added to `arrived`."""
        tokens = self.tokens(prompt)
        blocks = self.identity.layout.resumable_blocks(len(tokens))
        tokens = tokens[: blocks * self.identity.block_tokens]
        request = PrefillRequest(
            identity=self.identity.digest,
            tenant="flows",
            tokens=tokens,
            from_blocks=0,
            blocks=blocks,
            nonce=new_nonce(),
            request_id="tester",
        )
        return PrefillCall(request, self.hashes(tokens), lambda arrival: arrived.append(arrival.block))

    def resident_bytes(self, name: str) -> int:
        """Memory of the node called `name`."""
        return int(psutil.Process(self.children[name].pid).memory_info().rss)

    def write_inventory(self, name: str) -> Path:
        """The inventory of the node called `name`, as its plan is now."""
        return self._write_inventory(name, self.ports, name)

    def _run(self, label: str, name: str, inventory: Path) -> None:
        role = self.plans[name].role
        command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(inventory), "serve", role, name]
        self.children[label] = Child(label, command, self.directory / f"{label}.log")

    def _write_inventory(self, name: str, ports: Mapping[str, int], label: str) -> Path:
        """A head sees its peers through the proxies; everybody else sees all nodes as they are."""
        plan, wanted = self.plans[name], self.wanted
        if plan.role == "head":
            ports = {other: ports[other] if other == name else proxy.port for other, proxy in self.proxies.items()}
        key_file = self.directory / plan.key_file
        if not key_file.exists():
            write_fleet_key(key_file)
        document = {
            "fleet": {"name": "flows", "tenant": "flows", "key_file": str(key_file)},
            "model": {"id": "tiny", "path": str(plan.model or self.model)},
            "cache": {"pool_gb": 0.25, **wanted.cache, **plan.cache},
            "prefill": {
                "min_tokens": 64,
                "policy": "prefer_remote",
                "grace_seconds": 0,
                "answers": False,
                "packing": "never",
                "audit": 0,
                **wanted.prefill,
                **plan.prefill,
            },
            "hosts": {other: self._describe_host(other, ports[other]) for other in self.plans},
        }
        path = self.directory / f"{label}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def _describe_host(self, name: str, port: int) -> dict[str, Any]:
        plan = self.plans[name]
        endpoint = {"network": "loopback", "address": LOOPBACK, "port": port, "trusted": True}
        host = {"role": plan.role, "endpoints": [endpoint], **plan.host}
        if plan.role == "head":
            host["api"] = {"bind": LOOPBACK, "port": self.api_ports[name], **plan.api}
        return host


@contextlib.contextmanager
def running(directory: Path, model: Path, wanted: Wanted = Wanted()) -> Iterator[LoopbackFleet]:
    """A fleet for as long as the block runs."""
    with LoopbackFleet(directory, model, wanted) as fleet:
        yield fleet


def grown(read: Callable[[], float], before: float, by: float = 1) -> Callable[[], bool]:
    """Whether `read` has grown by at least `by` since it was `before`."""
    return lambda: read() >= before + by


__all__ = ["PAIR", "LoopbackFleet", "Plan", "Wanted", "grown", "running"]
