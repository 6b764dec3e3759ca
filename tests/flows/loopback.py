"""A fleet of real processes on loopback for the flows: every path between head and peers goes through a fault proxy."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from faults.proxy import FaultProxy
from kakeya_ops.demo.fleet import LOOPBACK, Child, choose_ports
from kakeya_ops.secret import Secret, write_fleet_key
from kakeya_ops.verify.head_client import Completion, HeadClient
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, body_digest, new_nonce, sign_directive

START_SECONDS = 60.0
_POLL_SECONDS = 0.02


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Poll `condition` until it holds; fail when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class Wanted:
    """What a fleet is to be: peers by name with their role, and sections of the inventory over the defaults.

    `peer_cache` and `peer_model` make the peers differ from the head.
    """

    peers: Mapping[str, str] = field(default_factory=lambda: {"worker": "worker"})
    cache: Mapping[str, Any] = field(default_factory=dict)
    prefill: Mapping[str, Any] = field(default_factory=dict)
    peer_cache: Mapping[str, Any] = field(default_factory=dict)
    peer_model: Path | None = None


class LoopbackFleet:
    """A head, its peers and the proxies between them. Use it as a context manager."""

    def __init__(self, directory: Path, model: Path, wanted: Wanted = Wanted()) -> None:
        self.directory = directory
        self.model = model
        self.wanted = wanted
        self.key: Secret = write_fleet_key(directory / "fleet.key")
        names = list(wanted.peers)
        self.api_port, self._head_port, *ports = choose_ports(2 + len(names))
        self.ports = dict(zip(names, ports, strict=True))
        self.children: dict[str, Child] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> LoopbackFleet:
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            for name, port in self.ports.items():
                self.proxies[name] = undo.enter_context(FaultProxy((LOOPBACK, port)))
            for name in self.ports:
                self.start(name)
            self.start("head")
            self.client = undo.enter_context(HeadClient(f"http://{LOOPBACK}:{self.api_port}"))
            self._wait_ready()
            self._exit = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def start(self, name: str) -> None:
        """Start the node called `name`."""
        role = "head" if name == "head" else self.wanted.peers[name]
        inventory = self._write_inventory(name)
        command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(inventory), "serve", role, name]
        self.children[name] = Child(name, command, self.directory / f"{name}.log")

    def kill(self, name: str) -> None:
        """End the node called `name` as a power cut would."""
        self.children[name].signal_group(signal.SIGKILL)
        assert self.children[name].ended_within(10)

    def stop(self) -> None:
        """End everything."""
        for child in self.children.values():
            child.signal_group(signal.SIGTERM)
        for child in self.children.values():
            if not child.ended_within(15):
                child.signal_group(signal.SIGKILL)
                child.ended_within(5)

    def node(self, name: str) -> dict[str, Any]:
        """What the head says about the node called `name`; empty when it does not know it."""
        nodes = self.client.network()["nodes"]
        return next((node for node in nodes if node["node"] == name), {})

    def wait_for_peer(self, name: str) -> None:
        """Wait until the head would ask the node called `name`."""
        wait_until(lambda: bool(self.node(name).get("usable")), f"meeting {name}")

    def complete(self, prompt: str, *modes: str, max_tokens: int = 12) -> tuple[Completion, dict[str, Any]]:
        """A greedy completion under a signed directive, and its receipt."""
        request = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": 1}
        body = json.dumps(request).encode()
        headers = {}
        if modes:
            directive = sign_directive(self.key, frozenset(modes), new_nonce(), body_digest(body), time.time())
            headers = {DIRECTIVE_HEADER: directive}
        completion = self.client.complete(body, headers)
        return completion, self.client.receipt(completion.request_id)

    def counters(self) -> dict[str, Any]:
        """The head's counters, with fallbacks by reason."""
        summary = self.client._json(self.client._send("GET", "/v1/network/summary"))
        return {**summary["counters"], "by_reason": summary["fallbacks_by_reason"]}

    def _wait_ready(self) -> None:
        def ready() -> bool:
            for child in self.children.values():
                assert not child.ended_within(0), child.last_words()
            return self.client.healthy() and all(self.node(name) for name in self.ports)

        wait_until(ready, "the fleet's start")

    def _write_inventory(self, name: str) -> Path:
        """The head sees its peers through the proxies; each peer sees itself as it is."""
        at_head = name == "head"
        ports = {peer: self.proxies[peer].port if at_head else port for peer, port in self.ports.items()}
        hosts: dict[str, Any] = {
            "head": {
                "role": "head",
                "api": {"bind": LOOPBACK, "port": self.api_port},
                "endpoints": [_endpoint(self._head_port)],
            }
        }
        for peer, role in self.wanted.peers.items():
            hosts[peer] = {"role": role, "endpoints": [_endpoint(ports[peer])]}
        model = self.model if at_head else self.wanted.peer_model or self.model
        document = {
            "fleet": {"name": "flows", "tenant": "flows", "key_file": str(self.directory / "fleet.key")},
            "model": {"id": "tiny", "path": str(model)},
            "cache": {"pool_gb": 0.25, **self.wanted.cache, **({} if at_head else self.wanted.peer_cache)},
            "prefill": {"min_tokens": 64, "policy": "prefer_remote", **self.wanted.prefill},
            "hosts": hosts,
        }
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path


def _endpoint(port: int) -> dict[str, Any]:
    return {"network": "loopback", "address": LOOPBACK, "port": port, "trusted": True}


@contextlib.contextmanager
def running(directory: Path, model: Path, wanted: Wanted = Wanted()) -> Iterator[LoopbackFleet]:
    """A fleet for as long as the block runs."""
    with LoopbackFleet(directory, model, wanted) as fleet:
        yield fleet
