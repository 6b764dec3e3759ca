"""The observatory as the dashboard uses it: rates while a prompt is long, its thread, and that it survives faults."""

from __future__ import annotations

import threading

import pytest

from dashboard.hostile import HostileHead
from engine_bench import BLOCK_TOKENS
from front.towns import Town
from kakeya_ops.front.observatory import Observatory
from kakeya_ops.front.series import Sample
from kakeya_ops.serving.fleet import Known
from waiting import wait_until

DEADLINE_SECONDS = 20.0


def column(town: Town, name: str) -> list[float]:
    values: list[float | None] = town.observatory.series()["values"].get(name, [])
    return [value for value in values if value]


def test_a_request_shows_in_the_series_and_in_the_latencies(town: Town) -> None:
    town.complete("o" * (6 * BLOCK_TOKENS), max_tokens=8)
    wait_until(lambda: bool(column(town, "prefill_local_tokens_per_second")))
    wait_until(lambda: bool(column(town, "decode_tokens_per_second")))
    wait_until(lambda: bool(column(town, "inter_token_seconds_p95")))
    assert town.observatory.summary()["latency"]["first_token_seconds_p50"] > 0


def test_every_node_has_its_own_columns(town: Town) -> None:
    wait_until(lambda: {"head", "store"} <= town.observatory.series()["nodes"].keys())
    series = town.observatory.series()
    assert series["nodes"]["head"]["pool_budget_bytes"][-1] == town.node.pool.budget_bytes
    assert series["nodes"]["store"]["pool_budget_bytes"][-1] == 16 * 2**20
    columns = [*series["values"].values(), *(one for node in series["nodes"].values() for one in node.values())]
    assert {len(one) for one in columns} == {len(series["at"])}


def test_a_request_under_way_is_live_for_its_tenant_alone(town: Town) -> None:
    thread = threading.Thread(target=lambda: town.complete("l" * 100, max_tokens=200))
    thread.start()
    wait_until(lambda: bool(town.observatory.live("somebody")))
    [live] = town.observatory.live("somebody")
    assert live["prompt_tokens"] == 100
    assert town.observatory.live("another") == []
    assert town.observatory.summary()["live"] == 1
    thread.join(DEADLINE_SECONDS)
    wait_until(lambda: not town.observatory.live("somebody"))


def test_a_request_that_ended_has_its_timeline_and_its_outcome(town: Town) -> None:
    request_id = town.complete("e" * 100, max_tokens=3).headers["X-Request-Id"]
    wait_until(lambda: town.observatory.requests("somebody", 1)[0]["outcome"] is not None)
    [request] = town.observatory.requests("somebody", 1)
    assert (request["request_id"], request["outcome"]["decoded_tokens"]) == (request_id, 3)
    steps = [span["step"] for span in request["timeline"]]
    assert steps[:2] == ["queue", "lookup"]
    assert steps[-1] == "first token"
    last = request["timeline"][-1]
    assert last["began_seconds"] + last["seconds"] == pytest.approx(request["times"]["first_token"])


def test_what_the_tests_of_the_page_are_shown_is_what_there_is(town: Town) -> None:
    town.complete("fake", max_tokens=2)
    wait_until(lambda: not town.observatory.live("somebody"))
    real, fake = town.observatory, HostileHead()
    assert fake.summary().keys() == real.summary().keys()
    assert fake.summary()["tokens"].keys() == real.summary()["tokens"].keys()
    assert fake.summary()["latency"].keys() <= real.summary()["latency"].keys()
    assert fake.series().keys() <= real.series().keys()
    assert fake.nodes("x")["head"].keys() <= (real.nodes("x")["head"] | {"identity_difference": None}).keys()
    pairs = [
        (fake.nodes("x")["nodes"], real.nodes("x")["nodes"]),
        (fake.topology()["nodes"], real.topology()["nodes"]),
        (fake.topology()["links"], real.topology()["links"]),
        (fake.requests("x"), real.requests("somebody")),
    ]
    for told, found in pairs:
        assert {name for one in told for name in one} <= found[0].keys()


def test_a_look_that_fails_is_not_the_last(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, honest = [2], Observatory._sample

    def sample(self: Observatory, known: list[Known]) -> Sample:
        if failing[0]:
            failing[0] -= 1
            raise RuntimeError("a fault")
        return honest(self, known)

    monkeypatch.setattr(Observatory, "_sample", sample)
    wait_until(lambda: failing == [0])
    before = max(town.observatory.series()["at"], default=0.0)
    wait_until(lambda: max(town.observatory.series()["at"], default=0.0) > before)
