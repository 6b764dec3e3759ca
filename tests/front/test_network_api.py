"""``/v1/network`` over real HTTP: the fleet, the receipts, and nothing for those without a key."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine_bench import BLOCK_TOKENS
from front.towns import Town
from kakeya_ops.front.watch import Watch
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.serving.metrics import METRICS
from kakeya_ops.serving.receipts import PURPOSE
from kakeya_ops.wire.signing import verify_document
from serving.running import KEY, make_cache

_PARTS = ("summary", "nodes", "prefill", "tokens", "topology", "estimates", "series", "events")
PATHS = [*(f"/v1/network/{part}" for part in _PARTS), "/metrics"]


@pytest.mark.parametrize("path", [*PATHS, "/v1/network/receipts/abc"])
@pytest.mark.parametrize("key", [None, "Bearer wrong", "Basic the-key-of-somebody"])
def test_nothing_is_told_without_a_key(town: Town, path: str, key: str | None) -> None:
    headers = {"Authorization": key} if key else {}
    answer = httpx.get(f"{town.http.base_url}{path}", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_head_describes_itself_and_its_peers(town: Town) -> None:
    network = town.get("/v1/network/nodes")
    head, store = network["head"], next(node for node in network["nodes"] if node["node"] == "store")
    assert (head["node"], head["epoch"], head["model"]) == ("head", town.node.epoch, "tiny")
    assert CacheIdentity.from_json(head["identity_document"]).digest == head["identity"] == town.node.identity.digest
    assert (head["block_tokens"], head["window"], head["policy"]) == (BLOCK_TOKENS, None, "measured")
    assert (store["role"], store["usable"]) == ("cache", True)
    assert "head" not in [node["node"] for node in network["nodes"]]


def test_the_tenant_is_the_one_of_whoever_asks(town: Town) -> None:
    assert town.get("/v1/network/nodes")["head"]["tenant"] == "somebody"
    headers = {"Authorization": "Bearer the-key-of-another"}
    answer = httpx.get(f"{town.http.base_url}/v1/network/nodes", headers=headers)
    assert answer.json()["head"]["tenant"] == "another"


def test_two_nodes_with_one_id_are_told(town: Town) -> None:
    twin = make_cache("twins").card()
    rival = make_cache("twins").card().model_copy(update={"epoch": 1})
    town.node.cards.merge([twin, rival, rival.model_copy(update={"issued_at": rival.issued_at + 20})])
    [conflict] = town.get("/v1/network/nodes")["conflicts"]
    assert conflict.startswith("two nodes call themselves twins: instance ")
    assert twin.instance[:8] in conflict
    assert rival.instance[:8] in conflict


def test_a_request_shows_in_all_of_them(town: Town) -> None:
    before = town.get("/v1/network/tokens")["prompt_tokens"]
    prompt = "x" * (2 * BLOCK_TOKENS + 3)
    answer = town.complete(prompt)
    request_id = answer.headers["X-Request-Id"]
    assert town.get("/v1/network/tokens")["prompt_tokens"] == before + len(prompt)
    assert town.get("/v1/network/summary")["tokens"] == town.get("/v1/network/tokens")
    assert town.get("/v1/network/prefill")["requests"][0]["request_id"] == request_id
    assert "kakeya_tokens_computed_local_total" in town.http.get("/metrics").text


def test_a_receipt_is_the_signed_one_that_the_answer_named(town: Town) -> None:
    answer = town.complete("y" * 40)
    receipt = town.get(f"/v1/network/receipts/{answer.headers['X-Request-Id']}")
    assert receipt.pop("digest") == answer.headers["X-Kakeya-Receipt"]
    assert receipt["tenant"] == "somebody"
    verify_document([KEY], PURPOSE, receipt, receipt["mac"])


@pytest.mark.parametrize("path", ["/v1/network/summary", "/v1/network/prefill", "/metrics"])
def test_the_event_loop_does_not_wait_for_what_is_watched(
    town: Town, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    on_loop, honest = [], Watch.drain

    def drain(self: Watch) -> None:
        with contextlib.suppress(RuntimeError):
            on_loop.append(asyncio.get_running_loop())
        honest(self)

    monkeypatch.setattr(Watch, "drain", drain)
    assert town.http.get(path).status_code == 200
    assert on_loop == []


def test_a_list_ends_somewhere(town: Town) -> None:
    for _ in range(3):
        town.complete("z")
    assert 3 <= len(town.get("/v1/network/prefill")["requests"]) <= 50


@pytest.mark.parametrize("path", ["/v1/network/receipts/no-such-request", "/v1/network", "/v1/network/nothing"])
def test_what_is_not_there_is_a_404_in_openais_form(town: Town, path: str) -> None:
    answer = town.http.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert town.http.post("/v1/network/nodes").status_code == 405


def test_a_receipt_is_nobody_elses_business(town: Town) -> None:
    request_id = town.complete("mine").headers["X-Request-Id"]
    path = f"/v1/network/receipts/{request_id}"
    assert town.get(path)["request_id"] == request_id
    assert town.another.get(path).status_code == 404
    theirs = town.another.get("/v1/network/prefill").json()["requests"]
    assert request_id not in [one["request_id"] for one in theirs]
    other = town.complete("theirs", client=town.another).headers["X-Request-Id"]
    theirs = town.another.get("/v1/network/prefill").json()["requests"]
    assert theirs[0]["request_id"] == other
    assert {town.another.get(f"/v1/network/receipts/{one['request_id']}").json()["tenant"] for one in theirs} == {
        "another"
    }


def test_a_stream_too_names_its_request_and_its_receipt(town: Town) -> None:
    body = {"prompt": "streamed", "max_tokens": 3, "stream": True}
    with town.http.stream("POST", "/v1/completions", json=body) as answer:
        answer.read()
    receipt = town.get(f"/v1/network/receipts/{answer.headers['X-Request-Id']}")
    assert receipt["digest"] == answer.headers["X-Kakeya-Receipt"]


def test_the_metrics_of_a_head_are_all_of_the_list(town: Town) -> None:
    answer = town.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert set(families) == {metric.name for metric in METRICS if "head" in metric.roles}
    kinds = {metric.name: metric.kind for metric in METRICS}
    assert all(family.type == kinds[name] for name, family in families.items())
    up = {sample.labels["peer"]: sample.value for sample in families["kakeya_peer_up"].samples}
    assert up["store"] == 1


def test_all_surfaces_count_alike(town: Town) -> None:
    town.complete("counted", max_tokens=3)
    families = {one.name: one for one in text_string_to_metric_families(town.http.get("/metrics").text)}
    summary = town.get("/v1/network/summary")["counters"]
    card = town.node.card().counters
    own = town.get("/v1/network/nodes")["head"]["counters"]
    for name in ("requests", "tokens_decoded", "tokens_computed_local"):
        scraped = sum(sample.value for sample in families[f"kakeya_{name}"].samples)
        assert scraped == summary[name] == card[name] == own[name] > 0


def test_the_topology_is_the_head_and_the_way_to_its_peer(town: Town) -> None:
    topology = town.get("/v1/network/topology")
    assert topology["head"] == "head"
    assert {"node": "store", "role": "cache", "state": "usable"} in topology["nodes"]
    link = next(link for link in topology["links"] if link["to"] == "store")
    assert (link["from"], link["up"], link["one_way"], link["error"]) == ("head", True, None, None)
    assert link["rtt_seconds"] > 0


def events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a stream: name and data."""
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_events_begin_with_everything_and_go_on_with_what_changes(town: Town) -> None:
    with town.http.stream("GET", "/v1/network/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        told = events(answer)
        name, first = next(told)
        assert name == "snapshot"
        assert first["summary"]["counters"].keys() == town.get("/v1/network/summary")["counters"].keys()
        assert first["topology"]["nodes"] == town.get("/v1/network/topology")["nodes"]
        assert first["head"]["tenant"] == "somebody"
        assert {"at", "values", "nodes"} <= first["series"].keys()
        request_id = town.complete("watched").headers["X-Request-Id"]
        seen = first
        while not seen.get("requests") or seen["requests"][0]["request_id"] != request_id:
            name, seen = next(told)
            assert name == "change"
            assert "series" not in seen
            assert "policy" not in seen
    assert seen["requests"][0]["gain_sentence"].startswith("No gain: the head computed all")


def test_events_of_one_tenant_are_not_told_to_another(town: Town) -> None:
    town.complete("secret")
    with town.another.stream("GET", "/v1/network/events") as answer:
        _, first = next(events(answer))
    mine = {one["request_id"] for one in town.get("/v1/network/prefill")["requests"]}
    assert mine
    assert not mine & {one["request_id"] for one in first["requests"]}
