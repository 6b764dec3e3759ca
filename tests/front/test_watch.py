"""Requests watched: counted once, timed, listed while they live, forgotten when they are over."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from front.towns import Town
from kakeya_ops.engine.contract import DecodeRequest, FailedEvent, PrefillEvent, TokenEvent
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineBusy, EngineDead, InputError, RemoteRequired
from kakeya_ops.front.watch import Live, Tally, Watch, WatchedHead
from kakeya_ops.serving.contract import GenerateRequest, PrefixReady
from kakeya_ops.serving.counters import CounterName, Counters
from kakeya_ops.serving.receipts import ReceiptBook
from serving.test_receipts import RECEIPT

BLOCK = 64


def make_watch() -> Watch:
    return Watch(Counters(), ReceiptBook(), BLOCK)


def begin(watch: Watch, request_id: str = "r1", tenant: str = "somebody", tokens: int = 201) -> Live:
    return watch.begin(GenerateRequest(DecodeRequest(request_id, (1,) * tokens, 9), tenant))


def note(watch: Watch, live: Live, *events: Any) -> None:
    for event in events:
        watch.note(live, event)
    watch.drain()


def test_a_request_is_listed_with_its_progress_until_it_ends() -> None:
    watch = make_watch()
    live = begin(watch)
    assert watch.live() == []
    watch.drain()
    stages = [watch.live()[0]["stage"]]
    for event in (PrefillEvent(64, 200, "allens"), PrefillEvent(200, 200), PrefixReady(64, "d" * 64, 0), TokenEvent(1)):
        note(watch, live, event)
        stages.append(watch.live()[0]["stage"])
    assert stages == ["queued", "remote prefill", "prefill", "prefill", "decode"]
    [shown] = watch.live()
    assert (shown["request_id"], shown["prompt_tokens"], shown["done_tokens"], shown["total_tokens"]) == (
        "r1",
        201,
        200,
        200,
    )
    assert shown["decoded_tokens"] == 1
    assert shown["first_token_seconds"] >= 0
    note(watch, live, TokenEvent(2, "stop"))
    assert watch.live() == []
    outcome = watch.outcome("r1")
    assert outcome is not None
    assert (outcome.finish, outcome.decoded_tokens) == ("stop", 2)


def test_one_tenants_requests_are_not_listed_for_another() -> None:
    watch = make_watch()
    begin(watch, "r1", "somebody")
    begin(watch, "r2", "another")
    watch.drain()
    assert [one["request_id"] for one in watch.live("another")] == ["r2"]
    assert [one["request_id"] for one in watch.live()] == ["r1", "r2"]


def test_tokens_are_tallied_by_where_they_came_from() -> None:
    watch = make_watch()
    live = begin(watch)
    remote = [PrefillEvent(done, 200, "allens") for done in (64, 128)]
    note(watch, live, *remote, PrefillEvent(192, 200), PrefillEvent(200, 200), TokenEvent(1), TokenEvent(2))
    assert watch.tally() == Tally(local_tokens=72, remote_tokens=128, decoded_tokens=2)
    assert watch.tally() == Tally()


@pytest.mark.parametrize(
    ("error", "finish", "failed"),
    [
        (Cancelled(), "cancelled", 0),
        (EngineBusy(1.0), "busy", 1),
        (EngineDead("x"), "engine_dead", 1),
        (RemoteRequired("x"), "remote_required", 1),
        (InputError("x"), "error", 1),
        (RuntimeError("x"), "internal", 1),
    ],
)
def test_how_a_request_failed_is_counted_by_its_reason(error: Exception, finish: str, failed: int) -> None:
    watch = make_watch()
    note(watch, begin(watch), FailedEvent(error), FailedEvent(error))
    outcome = watch.outcome("r1")
    assert outcome is not None
    assert outcome.finish == finish
    assert watch.counters.value(CounterName.REQUESTS_FAILED, reason=finish) == failed
    assert watch.counters.value(CounterName.REQUESTS) == 1


def test_latencies_are_of_first_and_later_tokens() -> None:
    watch = make_watch()
    assert set(watch.quantiles().values()) == {None}
    note(watch, begin(watch), *[TokenEvent(number) for number in range(5)])
    quantiles = watch.quantiles()
    assert sorted(quantiles) == [
        f"{name}_seconds_{quantile}" for name in ("first_token", "inter_token") for quantile in ("p50", "p95", "p99")
    ]
    assert all(value is not None and value >= 0 for value in quantiles.values())
    text = watch.counters.render().decode()
    assert "kakeya_first_token_seconds_count 1.0" in text
    assert "kakeya_inter_token_seconds_count 4.0" in text


def test_what_is_over_is_forgotten_in_the_end() -> None:
    watch = make_watch()
    for number in range(1100):
        note(watch, begin(watch, f"r{number}"), TokenEvent(1, "length"))
    assert watch.outcome("r0") is None
    assert watch.outcome("r1099") is not None
    assert len(watch._outcomes) == 1024
    assert not watch._live


def test_the_log_has_numbers_and_ids_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    watch = make_watch()
    watch.receipts.add(RECEIPT)
    with caplog.at_level(logging.INFO):
        note(watch, begin(watch), TokenEvent(1, "stop"))
    [record] = caplog.records
    assert record.getMessage() == "request ended"
    fields = record.__dict__
    assert (fields["request_id"], fields["job"], fields["worker"]) == ("r1", "j1", "worker")
    assert (fields["finish"], fields["gain"], fields["decoded_tokens"]) == ("stop", "faster worker", 1)


TOKENS = st.lists(st.sampled_from(["token", "prefill", "end", "fail"]), max_size=30)


@given(TOKENS)
def test_whatever_comes_in_whatever_order_nothing_is_lost(kinds: list[str]) -> None:
    watch = make_watch()
    live = begin(watch)
    made = {
        "token": TokenEvent(1),
        "prefill": PrefillEvent(64, 200),
        "end": TokenEvent(1, "stop"),
        "fail": FailedEvent(InputError("x")),
    }
    note(watch, live, *(made[kind] for kind in kinds))
    decoded = sum(kind in ("token", "end") for kind in kinds)
    assert watch.counters.value(CounterName.TOKENS_DECODED) == decoded
    assert len(watch.live()) == (0 if {"end", "fail"} & set(kinds) else 1)


def test_many_threads_lose_nothing() -> None:
    watch = make_watch()

    def work(name: str) -> None:
        for number in range(200):
            live = begin(watch, f"{name}{number}")
            watch.note(live, TokenEvent(1, "stop"))
            if number % 20 == 0:
                watch.drain()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.drain()
    assert watch.counters.value(CounterName.REQUESTS) == watch.counters.value(CounterName.TOKENS_DECODED) == 800
    assert watch.live() == []


@pytest.mark.parametrize(("error", "reason"), [(EngineBusy(1.0), "busy"), (RuntimeError("a bug"), "internal")])
def test_a_refused_request_is_over_at_once(
    town: Town, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    watch = make_watch()
    head = WatchedHead(town.observatory.head, watch)

    def refuse(request: Any, on_event: Any) -> Any:
        raise error

    monkeypatch.setattr(town.observatory.head, "submit", refuse)
    with pytest.raises(type(error)):
        head.submit(GenerateRequest(DecodeRequest("r9", (1, 2), 1), "somebody"), lambda event: None)
    watch.drain()
    assert len(watch) == 0
    assert watch.counters.value(CounterName.REQUESTS_FAILED, reason=reason) == 1
