"""The fleet as plain values: nothing that a card says is lost, and what is not known is null."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kakeya_ops.front.network import describe_node, describe_request, describe_summary, describe_tokens
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.compatibility import Difference
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.fleet import Known
from kakeya_ops.serving.links import Link
from kakeya_ops.serving.quarantine import Held
from kakeya_ops.serving.receipts import Fallback
from serving.findings import EVIDENCE
from serving.running import make_cache
from serving.test_receipts import RECEIPT

LINK = Link(Endpoint("127.0.0.1", 5001, "loopback"), 0.001, 1e9, None)
CARD = make_cache("store").card()
KNOWN = Known("store", "cache", CARD, LINK, None, usable=True)
ABSENT = Known("worker", "worker", None, replace(LINK, last_error="worker: refused"), None, usable=False)


def test_a_node_is_its_card_its_link_and_our_judgement() -> None:
    node = describe_node(KNOWN)
    assert (node["node"], node["role"]) == ("store", "cache")
    assert (node["epoch"], node["instance"], node["version"]) == (CARD.epoch, CARD.instance, CARD.version)
    assert (node["healthy"], node["reachable"], node["usable"], node["identity_match"]) == (True, True, True, True)
    assert node["identity_difference"] is None
    assert node["endpoint"] == "127.0.0.1:5001"
    assert node["link"]["bytes_per_second"] == 1e9
    assert node["counters"] == CARD.counters
    assert node["pool"] == {"used_bytes": CARD.pool.used_bytes, "budget_bytes": 16 * 2**20}
    assert node["load"] == {"queued": 0, "running": 0, "queue_seconds": 0.0}


def test_a_difference_is_named_with_both_values() -> None:
    node = describe_node(replace(KNOWN, difference=Difference("window", 2048, 64), usable=False))
    assert node["identity_match"] is False
    assert node["identity_difference"] == {"field": "window", "ours": 2048, "theirs": 64}


def test_an_id_that_two_nodes_claim_is_told() -> None:
    assert describe_node(replace(KNOWN, conflict=True, usable=False))["conflict"] is True
    assert describe_node(KNOWN)["conflict"] is False


def test_who_is_in_quarantine_is_shown_with_the_evidence() -> None:
    assert describe_node(KNOWN)["quarantine"] is None
    shown = describe_node(replace(KNOWN, held=Held("store", 1.0, EVIDENCE), usable=False))["quarantine"]
    assert shown["reason"].startswith("its KV of tokens 128 to 191 of request r1 differs")
    assert shown["evidence"]["instance"] == "ab" * 16
    json.dumps(shown, allow_nan=False)


def test_a_host_without_a_card_has_the_same_fields_and_says_why() -> None:
    node = describe_node(ABSENT)
    assert set(node) == set(describe_node(KNOWN))
    assert (node["node"], node["role"], node["healthy"], node["reachable"]) == ("worker", "worker", None, False)
    assert (node["identity_match"], node["identity"], node["epoch"], node["counters"]) == (None, None, None, {})
    assert node["link"]["last_error"] == "worker: refused"
    without = describe_node(replace(ABSENT, link=None))
    assert (without["link"], without["endpoint"], without["rtt_seconds"]) == (None, None, None)


@pytest.mark.parametrize("known", [KNOWN, ABSENT])
def test_all_of_it_is_json(known: Known) -> None:
    json.dumps(describe_node(known), allow_nan=False)


def test_tokens_are_parts_of_a_whole() -> None:
    counters = Counters()
    assert describe_tokens(counters)["reused_share"] is None
    counters.add(CounterName.TOKENS_COMPUTED_LOCAL, 10)
    counters.add(CounterName.TOKENS_COMPUTED_REMOTE, 20, worker="a")
    counters.add(CounterName.TOKENS_REUSED, 30)
    assert describe_tokens(counters) == {
        "prompt_tokens": 60,
        "tokens_computed_local": 10,
        "tokens_computed_remote": 20,
        "tokens_reused": 30,
        "reused_share": 0.5,
    }


def test_a_summary_counts_nodes_and_reasons() -> None:
    counters = Counters()
    counters.add(CounterName.FALLBACKS, worker="worker", reason="timeout")
    counters.add(CounterName.FALLBACKS, 2, worker="worker", reason="corrupt")
    counters.add(CounterName.REQUESTS_FAILED, 3, reason="busy")
    summary = describe_summary(counters, [KNOWN, ABSENT])
    assert (summary["nodes"], summary["workers"], summary["caches"], summary["reachable"]) == (2, 1, 1, 1)
    assert summary["fallbacks_by_reason"] == {"corrupt": 2, "timeout": 1}
    assert summary["failures_by_reason"] == {"busy": 3}
    assert summary["counters"]["fallbacks"] == summary["by_worker"]["worker"]["fallbacks"] == 3


def test_a_request_is_one_line() -> None:
    line = describe_request(replace(RECEIPT, fallback=Fallback("worker", "timeout", "silent")))
    assert (line["request_id"], line["decision"], line["worker"]) == ("r1", "remote_compute", "worker")
    assert (line["fallback"], line["gain"]) == ("timeout", "faster worker")
    assert describe_request(RECEIPT)["fallback"] is None
    json.dumps(line)
