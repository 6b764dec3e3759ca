from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from bench.acting import KEY, ActingClient
from kakeya_ops.bench import rounds as module
from kakeya_ops.bench.asking import Asker
from kakeya_ops.bench.gaps import Directed, Gaps, Interruption
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.rounds import Rounds
from kakeya_ops.bench.samples import NotMeasured
from kakeya_ops.bench.streams import TimedStream

PLAN = BenchPlan("http://head", (KEY,), lengths=(500, 2000), rounds=2)


def make(client: ActingClient, *workers: str, seconds: float = 1000.0, tell: Any = None) -> Rounds:
    asker = Asker(PLAN, cast(Any, client))
    return Rounds(PLAN, asker, workers, time.monotonic() + seconds, tell or (lambda text: None))


@pytest.fixture
def client() -> ActingClient:
    return ActingClient(time.time)


def test_each_prompt_goes_all_ways_one_right_after_the_other(client: ActingClient) -> None:
    rounds = make(client, "worker", "second")
    assert rounds.run() == 2
    asked = [(kind, node) for kind, node, _ in client.asked]
    one = [("remote", "w"), ("remote_hit", "w"), ("hot_hit", None), ("local", None)]
    both = [(kind, node and name) for name in ("worker", "second") for kind, node in one]
    assert asked == both * len(PLAN.lengths) * 2
    assert len(rounds.samples) == len(asked)
    assert rounds.notes == ()


def test_without_a_worker_the_head_is_measured_alone(client: ActingClient) -> None:
    make(client).run()
    assert {kind for kind, _, _ in client.asked} == {"local", "hot_hit"}


def test_warming_up_counts_for_nothing_but_teaches_lengths(client: ActingClient) -> None:
    rounds = make(client, "worker")
    client.spoil = lambda receipt: receipt.update(times={})
    rounds.warm_up()
    assert (rounds.samples, rounds.notes) == ([], ())
    assert [(kind, node) for kind, node, _ in client.asked] == [("remote", "worker"), ("local", None)] * 2
    client.spoil = lambda receipt: None
    rounds.run()
    assert all(abs(sample.prompt_tokens / sample.length - 1) < 0.15 for sample in rounds.samples)


def test_when_time_is_up_nothing_new_begins(client: ActingClient) -> None:
    rounds = make(client, "worker", seconds=-1)
    rounds.warm_up()
    assert rounds.run() == 0
    assert rounds.jitter() == ()
    assert client.asked == []
    assert rounds.notes == (
        "time was up before the second warm-up",
        "time was up before round 1 of 2",
        "time was up before decode jitter",
    )


def test_what_went_wrong_is_told_once_with_its_count(client: ActingClient) -> None:
    client.spoil = lambda receipt: receipt["remote"] and receipt.update(fallback={"message": "it died"})
    rounds = make(client, "worker")
    rounds.run()
    assert (
        "remote of worker at 500 tokens was not measured: the head fell back to itself: it died (2 ×)" in rounds.notes
    )
    assert {sample.kind for sample in rounds.samples} == {"hot_hit", "local"}


def test_requests_of_others_are_looked_for_between_rounds(client: ActingClient) -> None:
    client.live = 3
    rounds = make(client)
    rounds.run()
    assert rounds.live == [3, 3]


def interruption(calm: float, request_id: str) -> Interruption:
    return Interruption(
        Gaps(64, calm, calm, calm), Gaps(9, 0.5, 0.6, 0.7), TimedStream(request_id=request_id, arrivals=[1.0])
    )


def test_jitter_is_measured_alone_and_beside_each(client: ActingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = iter([0.3, 0.2, 0.1])

    def measure(server: Any, running: Directed, newcomer: Callable[[], Directed]) -> Interruption:
        arrival = newcomer()
        return interruption(next(calm), client.complete(arrival.body, arrival.headers).request_id)

    monkeypatch.setattr(module, "measure_interruption", measure)
    rounds = make(client, "worker", "second")
    lines = rounds.jitter()
    assert [line.beside for line in lines] == [
        None,
        "2000 tokens computed by the head itself",
        "2000 tokens computed by worker",
        "2000 tokens computed by second",
    ]
    assert lines[0].gaps.median_seconds == 0.1
    assert [(kind, node) for kind, node, _ in client.asked] == [
        ("local", None),
        ("remote", "worker"),
        ("remote", "second"),
    ]
    assert rounds.asker.requests == 6  # a stream and a newcomer each
    assert rounds.asker.computed_tokens.keys() == {"worker", "second"}


def test_jitter_that_cannot_be_measured_is_told(client: ActingClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> Interruption:
        raise NotMeasured("it stopped")

    monkeypatch.setattr(module, "measure_interruption", measure)
    rounds = make(client)
    assert rounds.jitter() == ()
    assert rounds.notes == ("decode beside 2000 tokens computed by the head itself was not measured: it stopped (1 ×)",)
