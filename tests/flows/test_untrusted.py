"""A worker that is reached over an untrusted network alone: everything by TLS, and whoever is not right is not used.

The network is an address of this machine's loopback interface that is no loopback address, which only root can add.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.heads import wait_until
from flows.inside import worker_inside
from flows.loopback import LoopbackFleet, Plan, Wanted
from flows.networks import untrusted_network
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.certificates.authority import Authority
from kakeya_ops.certificates.places import authorities_path, certificate_path
from ports import choose_ports
from trust import AUTHORITY, LONG_AGO, NOW, STRANGER, write_certificate

pytestmark = pytest.mark.system("root")

ADDRESS = "10.211.55.7"
PROMPT_TOKENS = 400
BAD = {
    "expired": ("has expired", AUTHORITY, "expired", LONG_AGO),
    "foreign": ("not of an authority of this fleet", STRANGER, "foreign", NOW),
    "other": ("does not name other", AUTHORITY, "somebody-else", NOW),
}


def certify(folder: Path, key_file: str, node: str, issuer: Authority = AUTHORITY, now: Any = NOW) -> None:
    """The files that deploy would write beside the key file of one node."""
    key = folder / key_file
    authorities_path(key).write_bytes(AUTHORITY.pem)
    write_certificate(certificate_path(key), issuer.issue(node, (ADDRESS,), now))


def plan(role: str, port: int | None = None, **more: Any) -> Plan:
    host = {} if port is None else {"endpoints": [{"network": "wifi", "address": ADDRESS, "port": port}]}
    return Plan(role, host=host, **more)


@pytest.fixture(scope="module")
def untrusted_address() -> Iterator[str]:
    with untrusted_network(ADDRESS) as address:
        yield address


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, untrusted_address: str
) -> Iterator[LoopbackFleet]:
    folder = tmp_path_factory.mktemp("untrusted")
    ports = choose_ports(1 + len(BAD))
    plans = {"head": plan("head"), "worker": plan("worker", ports[0], key_file="worker.key")}
    for port, name in zip(ports[1:], BAD, strict=True):
        plans[name] = plan("worker", port, early=False, key_file=f"{name}.key")
    wanted = Wanted(plans)
    made = LoopbackFleet(folder, tiny_llama, wanted)
    certify(folder, "fleet.key", "head")
    for name in ("worker", *BAD):
        (folder / f"{name}.key").write_bytes((folder / "fleet.key").read_bytes())
        (folder / f"{name}.key").chmod(0o600)
    certify(folder, "worker.key", "worker")
    for name, (_, issuer, named, now) in BAD.items():
        certify(folder, f"{name}.key", named, issuer, now)
    with made:
        yield made


@pytest.fixture
def served(fleet: LoopbackFleet) -> LoopbackFleet:
    """The fleet with its good worker."""
    if fleet.children["worker"].ended_within(0):
        fleet.start("worker")
        fleet.wait_ready("worker")
    fleet.head.wait_for_peer("worker")
    return fleet


@pytest.fixture
def alone(fleet: LoopbackFleet) -> LoopbackFleet:
    """The fleet without it."""
    if not fleet.children["worker"].ended_within(0):
        fleet.end("worker")
    wait_until(lambda: not fleet.head.usable("worker"), "the worker's end")
    return fleet


def test_a_prefix_comes_by_tls_and_gives_the_local_tokens(served: LoopbackFleet) -> None:
    fleet = served
    prompt = fresh_prompt(PROMPT_TOKENS)
    remote, receipt = fleet.head.complete(prompt, "remote")
    local, _ = fleet.head.complete(prompt, "local")
    assert (remote.tokens, remote.logprobs) == (local.tokens, local.logprobs)
    assert receipt["remote"]["computed_tokens"] == whole_blocks(PROMPT_TOKENS)
    assert receipt["remote"]["link"]["security"] == "tls"
    assert fleet.head.node("worker")["link"]["security"] == "tls"
    links = {link["to"]: link["security"] for link in fleet.head.get("/v1/network/topology")["links"]}
    assert links["worker"] == "tls"


@pytest.mark.parametrize("name", BAD)
def test_a_worker_with_a_wrong_certificate_is_never_used_and_the_local_tokens_come(
    alone: LoopbackFleet, name: str
) -> None:
    fleet, said = alone, BAD[name][0]
    with worker_inside(fleet, name) as node:
        wait_until(lambda: said in str(fleet.head.node(name).get("link")), f"the verdict about {name}")
        assert not fleet.head.usable(name)
        prompt = fresh_prompt(PROMPT_TOKENS)
        answer, receipt = fleet.head.complete(prompt)
        expected, _ = fleet.head.complete(prompt, "local")
        assert (answer.tokens, answer.logprobs) == (expected.tokens, expected.logprobs)
        assert receipt["local_computed_tokens"] == PROMPT_TOKENS
        assert node.counters.value("requests_refused") == node.counters.value("lookups") == 0


def test_a_stranger_and_a_caller_in_clear_get_nothing_but_the_reason(served: LoopbackFleet) -> None:
    fleet = served
    port = fleet.plans["worker"].host["endpoints"][0]["port"]
    said = subprocess.run(["curl", "-s", f"http://{ADDRESS}:{port}/healthz"], capture_output=True, timeout=60)
    assert b"tls_required" in said.stdout
    wait_until(lambda: fleet.head.node("worker")["counters"]["connections_refused"] > 0, "the count")
