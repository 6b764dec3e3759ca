"""One fleet of everything that can be wrong with a peer, and heads of every policy."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.heads import Head, Receipt, try_until, wait_until
from flows.inside import worker_inside
from flows.loopback import LoopbackFleet, Plan, Wanted, running
from flows.prompts import BLOCK, fresh_prompt, whole_blocks
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.peer.client import BlockArrival, WantedBlock
from kakeya_ops.serving.cache import write_identity
from kakeya_ops.verify.probe import ProbeOptions, run_probe
from kakeya_ops.verify.report import VerifyReport

KEYS = {"key-of-the-first-tenant": "first", "key-of-the-second-tenant": "second tenant, with spaces"}
FIRST, SECOND = KEYS
PROMPT_TOKENS = 400


def plans(directory: Path) -> dict[str, Plan]:
    keys = {"keys_file": str(directory / "keys.yaml")}
    other = make_tiny_llama(directory / "other-weights", seed=1)
    return {
        "head": Plan("head", api=keys, prefill={"policy": "measured"}),
        "strict": Plan("head", api=keys, prefill={"require_remote": True}),
        "equal": Plan("worker"),
        "window": Plan("worker", early=False, cache={"sink": 0, "window": 128}),
        "blocks": Plan("worker", early=False, cache={"block_tokens": 32}),
        "weights": Plan("worker", early=False, model=other),
        "stranger": Plan("worker", early=False, key_file="stranger.key"),
        "store": Plan("cache", early=False),
        "twin": Plan("cache", early=False),
        "absent": Plan("worker", early=False),
    }


INSIDE = ("window", "blocks", "weights", "stranger")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[LoopbackFleet]:
    directory = tmp_path_factory.mktemp("mixed")
    keys = directory / "keys.yaml"
    keys.write_text("".join(f"{key}: {json.dumps(tenant)}\n" for key, tenant in KEYS.items()))
    os.chmod(keys, 0o600)
    wanted = Wanted(plans(directory), api_key=FIRST)
    with running(directory, tiny_llama, wanted) as fleet, contextlib.ExitStack() as inside:
        write_identity(directory / "fleet.key.identity.json", fleet.identity)
        fleet.start("store")
        fleet.start("twin")
        fleet.start_twin("twin")
        for name in INSIDE:
            inside.enter_context(worker_inside(fleet, name))
        yield fleet


@pytest.fixture
def fleet(mixed: LoopbackFleet) -> LoopbackFleet:
    """The fleet, with its one equal worker known to every head."""
    for head in mixed.heads.values():
        head.wait_for_peer("equal")
    return mixed


def probe(fleet: LoopbackFleet, worker: str) -> VerifyReport:
    options = ProbeOptions(fleet.head.url, (fleet.key,), worker=worker, api_key=fleet.head.client_key)
    return run_probe(options, lambda line: None)


DIFFERENCES = {
    "blocks": ("block_tokens", 64, 32),
    "window": ("window", None, 128),
    "weights": ("weights", str, str),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_worker_with_another_identity_is_refused_by_its_first_difference(fleet: LoopbackFleet, name: str) -> None:
    field, ours, theirs = DIFFERENCES[name]
    wait_until(lambda: fleet.head.node(name).get("reachable") is True, f"meeting {name}")
    node = fleet.head.node(name)
    assert (node["usable"], node["identity_match"]) == (False, False)
    difference = node["identity_difference"]
    assert difference["field"] == field
    if field == "weights":
        assert difference["ours"] != difference["theirs"]
    else:
        assert (difference["ours"], difference["theirs"]) == (ours, theirs)
    report = probe(fleet, name)
    assert not report.passed
    assert f"{field} is" in report.checks[0].detail
    assert name in report.checks[0].detail


def test_none_of_those_that_differ_is_ever_asked(fleet: LoopbackFleet) -> None:
    _, receipt = fleet.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
    assert list(receipt["decision"]["predicted_seconds"]) == ["local", "remote_compute equal"]
    for name in DIFFERENCES:
        assert fleet.counter(name, "lookups") == fleet.counter(name, "jobs_started") == 0


def test_a_worker_with_another_key_is_never_used_and_the_reason_is_visible(fleet: LoopbackFleet) -> None:
    wait_until(lambda: "wrong key" in str(fleet.head.node("stranger")["link"]), "meeting the stranger")
    node = fleet.head.node("stranger")
    assert (node["role"], node["reachable"], node["usable"]) == ("worker", False, False)
    assert fleet.head.node("absent")["link"]["last_error"].startswith("absent: ")
    summary = fleet.head.get("/v1/network/summary")
    assert (summary["workers"], summary["caches"]) == (6, 2)
    report = probe(fleet, "stranger")
    assert not report.passed
    assert report.checks[0].detail.startswith("stranger cannot be reached from the head: ")
    assert "wrong key" in report.checks[0].detail


def test_two_nodes_with_one_id_are_both_named_and_not_used(fleet: LoopbackFleet) -> None:
    wait_until(lambda: fleet.head.network()["conflicts"] != [], "the conflict")
    [conflict] = fleet.head.network()["conflicts"]
    assert conflict.startswith("two nodes call themselves twin: instance ")
    ports = {fleet.ports["twin"], fleet.twin_ports["twin"]}
    assert all(f":{port}" in conflict for port in ports)
    assert not fleet.head.usable("twin")


def test_a_cache_is_no_proof_and_computes_nothing(fleet: LoopbackFleet) -> None:
    fleet.head.wait_for_peer("store")
    report = probe(fleet, "store")
    assert not report.passed
    assert report.checks[0].detail.startswith("store is a cache")
    _, receipt = fleet.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
    assert receipt["decision"]["worker"] == "equal"
    assert "store" not in " ".join(receipt["decision"]["predicted_seconds"])


def test_a_cache_delivers_what_was_put_there(fleet: LoopbackFleet) -> None:
    prompt = fresh_prompt(PROMPT_TOKENS)
    local, _ = fleet.head.complete(prompt, "local")
    blocks = whole_blocks(PROMPT_TOKENS) // BLOCK
    wanted = [WantedBlock(i, 0, name) for i, name in enumerate(fleet.hashes(fleet.tokens(prompt), "first")[:blocks])]
    arrivals: list[BlockArrival] = []
    fleet.peer("head").fetch(fleet.identity.digest, wanted, arrivals.append)
    parts = [(PartKey(arrival.hash, arrival.part), arrival.stored) for arrival in arrivals]
    fleet.wait_ready("store")
    assert fleet.peer("store").put_blocks(fleet.identity.digest, parts) == blocks
    fleet.head.wait_for_peer("store")
    answer, receipt = fleet.head.complete(prompt, "remote", "skip-local-pool")
    assert answer.logprobs == local.logprobs
    assert (receipt["decision"]["kind"], receipt["remote"]["node"]) == ("import", "store")
    assert receipt["remote"]["worker_receipt"] is None
    assert receipt["gain"] == "reuse"


def test_without_a_worker_a_strict_head_says_so(fleet: LoopbackFleet) -> None:
    strict = fleet.heads["strict"]
    body = {"prompt": fresh_prompt(PROMPT_TOKENS), "max_tokens": 4}
    assert strict.post("/v1/completions", body).status_code == 200
    fleet.proxies["equal"].set("refuse")
    fleet.proxies["equal"].sever()
    try:
        refused = strict.post("/v1/completions", body | {"prompt": fresh_prompt(PROMPT_TOKENS)})
        short = strict.post("/v1/completions", body | {"prompt": fresh_prompt(BLOCK)})
        forced, receipt = strict.complete(fresh_prompt(PROMPT_TOKENS), "local")
    finally:
        fleet.heal("equal")
    assert refused.status_code == 503
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "remote_required")
    assert error["message"].startswith("no worker delivered the prefix: ")
    assert short.status_code == 200
    assert len(forced.tokens) == 12
    assert receipt["decision"]["reason"] == "demanded by a signed directive"


def test_the_probe_passes_on_a_strict_head(fleet: LoopbackFleet) -> None:
    strict = fleet.heads["strict"]
    report = run_probe(ProbeOptions(strict.url, (fleet.key,), api_key=strict.client_key), lambda line: None)
    assert [check for check in report.checks if check.verdict != "ok"] == []


def unhurried(head: Head) -> Receipt:
    """The receipt of a cold request in which the worker answered in time, which on a crowded machine may take a few."""

    def ask() -> Receipt | None:
        head.wait_for_peer("equal")
        _, receipt = head.complete(fresh_prompt(PROMPT_TOKENS))
        return receipt if receipt["fallback"] is None else None

    return try_until(ask, "a worker in time")


def test_equal_machines_gain_nothing_on_one_cold_prompt_and_it_is_said(fleet: LoopbackFleet) -> None:
    decision = unhurried(fleet.head)["decision"]
    offered = decision["predicted_seconds"]
    if decision["kind"] == "local":
        # Also a worker that a crowded machine has made late once is named, with that.
        assert " from equal" in decision["reason"]
        assert offered["local"] <= offered["remote_compute equal"]
    else:  # on a crowded machine the worker may have measured itself to be much faster
        assert offered["local"] > offered["remote_compute equal"]
    assert "s predicted, against" in decision["reason"]


def test_tenants_never_share_a_hit(fleet: LoopbackFleet) -> None:
    first = fleet.head
    second = Head(first.port, fleet.key, SECOND)
    prompt = fresh_prompt(PROMPT_TOKENS)
    try:
        one, receipt = first.complete(prompt, "remote")
        assert receipt["tenant"] == "first"
        other, stranger = second.complete(prompt, "remote")
        assert other.logprobs == one.logprobs
        assert stranger["tenant"] == KEYS[SECOND]
        assert (stranger["local_pool_tokens"], stranger["decision"]["kind"]) == (0, "remote_compute")
        assert stranger["remote"]["pool_tokens"] == 0
        for head in (first, second):
            _, again = head.complete(prompt)
            assert again["local_pool_tokens"] == whole_blocks(PROMPT_TOKENS)
    finally:
        second.close()


KINDS = ("nodes", "summary", "prefill", "tokens", "topology", "series", "events")


def test_without_a_key_nothing_is_told(fleet: LoopbackFleet) -> None:
    nobody = Head(fleet.head.port, fleet.key, "a-key-that-nobody-has")
    try:
        for path in (*(f"/v1/network/{what}" for what in KINDS), "/metrics"):
            assert nobody.client._http.get(path).status_code == 401
        assert nobody.client.healthy()
    finally:
        nobody.close()
