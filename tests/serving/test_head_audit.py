"""The head and what its audits find: what is handed to them, and what a finding means for requests."""

from __future__ import annotations

from typing import Any

import pytest

from engine_bench import BLOCK_TOKENS
from faults.proxy import Fault
from kakeya_ops.serving.audit_case import Imported
from kakeya_ops.serving.sources import PeerSource
from serving import test_head
from serving.findings import EVIDENCE
from serving.running import TENANT
from serving.test_head import BLOCKS, Town

engine, town = test_head.engine, test_head.town


def test_what_came_is_handed_to_the_audit_also_from_a_broken_stream(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Imported] = []
    monkeypatch.setattr(town.head.auditor, "consider", handed.append)
    town.ask(15, "remote").tokens()
    town.ask(15, "remote", "skip-local-pool").tokens()
    town.proxy.set(down=Fault(cut_after_bytes=5 * town.engine.layout.parts[0].nbytes))
    town.proxy.sever()
    assert town.ask(16, "remote").receipt().fallback is not None
    town.ask(17, "local").tokens()
    card = town.worker.node.card()
    assert [(one.node, one.kind) for one in handed] == [
        ("worker", "remote_compute"),
        ("worker", "import"),
        ("worker", "remote_compute"),
    ]
    assert [one.instance for one in handed] == [card.instance, card.instance, ""]  # its card is not known here
    assert handed[0].checksums == handed[1].checksums
    assert 0 < len(handed[2].checksums) < BLOCKS == len(handed[0].checksums)


def test_a_request_that_began_before_a_finding_begins_anew(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, spaces = PeerSource.compute, []

    def find_out_meanwhile(source: PeerSource, order: Any, on_part: Any) -> Any:
        spaces.append(order.prompt.tenant)
        delivery = compute(source, order, on_part)
        town.head.quarantine.hold("worker", EVIDENCE)
        town.neighbours.sources = []
        return delivery

    monkeypatch.setattr(PeerSource, "compute", find_out_meanwhile)
    asked = town.ask(18, "remote")
    receipt = asked.receipt()
    assert (receipt.decision.kind, receipt.cached_tokens, receipt.remote) == ("local", 0, None)
    assert (receipt.tenant, spaces) == (TENANT, [TENANT])
    assert town.ask(18).receipt().local_pool_tokens == BLOCKS * BLOCK_TOKENS


def test_after_a_finding_nobody_holds_anything(town: Town) -> None:
    town.ask(19, "remote").tokens()
    town.head.quarantine.hold("another", EVIDENCE)
    again = town.ask(19, "remote").receipt()
    assert again.local_pool_tokens == 0
    assert again.remote is not None
    assert (again.remote.pool_tokens, again.remote.computed_tokens) == (0, BLOCKS * BLOCK_TOKENS)
    assert town.ask(19).receipt().local_pool_tokens == BLOCKS * BLOCK_TOKENS


def test_requests_and_audits_know_of_each_other(town: Town) -> None:
    asked = [town.ask(20 + seed) for seed in range(2)]
    for one in asked:
        one.tokens()
    town.engine.call(lambda: None)
    assert town.head.auditor._under_way == 0
