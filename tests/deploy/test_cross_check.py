"""What can be proved between two nodes, with nodes that really answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY, inventory
from kakeya_ops.deploy.cross_check import Check, CrossCheck
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import Secret
from kakeya_ops.serving.node import Node
from kakeya_ops.wire.cards import Card
from serving.running import KEY, Served, make_cache, simple_identity

RUNTIME = Runtime("1", "1", "cpu", "x", "1")


class NodeWithRuntime(Node):
    """A node whose card says what a head's does."""

    def card(self) -> Card:
        return super().card().model_copy(update={"runtime": RUNTIME.to_json()})


def node(name: str, identity: CacheIdentity | None = None) -> Node:
    made = make_cache(name, identity=identity)
    return NodeWithRuntime(made.settings, made.pool, made.identity)


def run(head: Served, vault_port: int, key: Secret = KEY) -> dict[str, Check]:
    text = PLANNER_INVENTORY.replace("{name: pair}", "{name: pair, tenant: tests}")
    text = text.replace("port: 51051", f"port: {head.port}").replace("port: 53053", f"port: {vault_port}")
    with Hosts(inventory(text), lambda host: LocalRunner(host.name), key) as hosts:
        checks = CrossCheck(hosts, seconds=0.2).run(["vault"])
    return {check.what: check for check in checks}


def verdicts(checks: dict[str, Check]) -> list[str]:
    return [check.verdict for check in checks.values()]


@pytest.mark.usefixtures("home")
class TestPairs:
    def test_two_that_know_each_other(self) -> None:
        with Served(node("head")) as head, Served(node("vault")) as vault:
            head.node.cards.merge([vault.node.card()])
            vault.node.cards.merge([head.node.card()])
            checks = run(head, vault.port)
        assert list(checks)[:2] == ["signed request head -> vault", "signed request vault -> head"]
        assert verdicts(checks) == ["ok"] * 4 + ["unknown"] * 2
        assert "no process" in checks["the process of vault reaches head"].found

    def test_strangers_are_named(self) -> None:
        with Served(node("head")) as head, Served(node("vault")) as vault:
            head.node.cards.merge([vault.node.card()])
            check = run(head, vault.port)["the running nodes know each other"]
        assert (check.verdict, check.found.split()[0]) == ("failed", "vault")

    def test_an_identity_that_differs_is_named_by_its_field(self) -> None:
        with Served(node("head")) as head, Served(node("vault", simple_identity(weights="99" * 32))) as vault:
            check = run(head, vault.port)["cache identity and runtime"]
        assert check.verdict == "failed"
        assert "differs in weights" in check.found

    def test_a_wrong_key_is_a_failure(self) -> None:
        with Served(node("head")) as head, Served(node("vault")) as vault:
            checks = run(head, vault.port, Secret(bytes(32)))
        assert verdicts(checks) == ["failed", "failed", "unknown", "unknown", "unknown", "unknown"]

    def test_a_node_that_is_down_is_unknown(self) -> None:
        with Served(node("head")) as head:
            checks = run(head, 1)
        assert verdicts(checks)[:4] == ["unknown", "ok", "unknown", "unknown"]


def test_only_pairs_with_a_chosen_host_are_checked(home: Path) -> None:
    with Hosts(inventory(), lambda host: LocalRunner(host.name), KEY) as hosts:
        assert CrossCheck(hosts).run([]) == []
