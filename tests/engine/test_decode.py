"""The running batch in the test's own thread: joins, leaves, and what is told of each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import mlx.core as mx
import pytest

from engine_bench import Bench, Recorder, memory_comes_back_to, prompt
from kakeya_ops.engine.contract import DecodeRequest, Sampling
from kakeya_ops.engine.decode import Decoder, Sequence
from kakeya_ops.engine.grouping import StepCost
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineDead
from listeners import Listener

MakeBench = Callable[[str], Bench]
GREEDY = Sampling()
END = 3
"""The tiny models' end of turn."""


class Desk:
    """A decoder and those who listen to it."""

    def __init__(self, bench: Bench, cost: StepCost | None = None) -> None:
        self.bench = bench
        self.decoder = Decoder(bench.model, frozenset({END}), cost or bench.cost)

    def insert(self, tokens: tuple[int, ...], max_tokens: int, sampling: Sampling = GREEDY) -> Sequence:
        sequence = Sequence(DecodeRequest("r", tokens, max_tokens, sampling), Listener())
        self.decoder.insert(sequence, self.bench.prefill(tokens[:-1]))
        return sequence

    def run(self) -> None:
        while self.decoder.step():
            pass

    def step_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self.decoder.step()


def heard(sequence: Sequence) -> Listener:
    assert isinstance(sequence.on_event, Listener)
    return sequence.on_event


def alone(bench: Bench, tokens: tuple[int, ...], count: int, sampling: Sampling = GREEDY) -> list[int]:
    """The tokens of a request that has the decoder to itself."""
    desk = Desk(bench)
    sequence = desk.insert(tokens, count, sampling)
    desk.run()
    return heard(sequence).tokens


def forward(bench: Bench, tokens: tuple[int, ...], count: int) -> tuple[list[int], list[mx.array]]:
    """Greedy tokens and log-probabilities, each from a forward pass over everything so far."""
    chosen: list[int] = []
    logprobs = []
    for _ in range(count):
        logits = bench.model(mx.array([[*tokens, *chosen]]))[0, -1]
        logprobs.append(logits - mx.logsumexp(logits))
        chosen.append(int(mx.argmax(logits).item()))
    return chosen, logprobs


@pytest.mark.parametrize("family", ["llama", "granite_hybrid"])
def test_tokens_are_those_of_plain_forward_passes(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    assert alone(bench, prompt(37), 12) == forward(bench, prompt(37), 12)[0]


@pytest.mark.parametrize("family", ["llama", "granite_hybrid"])
def test_a_prompt_of_one_token_is_decoded_from_nothing(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    assert alone(bench, (65,), 6) == forward(bench, (65,), 6)[0]


@pytest.mark.parametrize("family", ["llama", "granite_hybrid"])
def test_joining_and_leaving_changes_nobodys_tokens(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    prompts = [prompt(length, seed=length) for length in (5, 70, 33, 1)]
    counts = [14, 3, 9, 6]
    expected = [alone(bench, tokens, count) for tokens, count in zip(prompts, counts, strict=True)]
    desk = Desk(bench)
    sequences = []
    for tokens, count in zip(prompts, counts, strict=True):
        sequences.append(desk.insert(tokens, count))
        desk.decoder.step()
        desk.decoder.step()
    desk.run()
    assert [heard(sequence).tokens for sequence in sequences] == expected
    assert [heard(sequence).ends for sequence in sequences] == [1] * 4


def test_the_last_token_says_why_it_is_the_last(llama: Bench) -> None:
    desk = Desk(llama)
    short = desk.insert(prompt(9), 4)
    stopped = desk.insert(prompt(9), 40, Sampling(logit_bias={END: 1000.0}))
    desk.run()
    assert [event.finish for event in heard(short).token_events] == [None, None, None, "length"]
    assert [(event.token, event.finish) for event in heard(stopped).token_events] == [(END, "stop")]


def test_logprobs_are_those_of_the_model_best_first(llama: Bench) -> None:
    tokens = prompt(21)
    chosen, expected = forward(llama, tokens, 5)
    desk = Desk(llama)
    sequence = desk.insert(tokens, 5, Sampling(top_logprobs=4))
    desk.insert(prompt(50), 5)
    desk.run()
    for event, token, logprobs in zip(heard(sequence).token_events, chosen, expected, strict=True):
        assert event.token == token
        assert event.logprob == pytest.approx(logprobs[token].item(), abs=1e-4)
        best = mx.argsort(-logprobs)[:4].tolist()
        assert [name for name, _ in event.top] == best
        assert [value for _, value in event.top] == pytest.approx(logprobs[mx.array(best)].tolist(), abs=1e-4)
        assert event.top[0] == (token, event.logprob)


@pytest.mark.parametrize(("wanted", "given"), [(None, 0), (0, 0), (1, 1), (20, 20), (10_000, 260)])
def test_as_many_likely_tokens_are_told_as_wanted_or_there_are(llama: Bench, wanted: int | None, given: int) -> None:
    desk = Desk(llama)
    sequence = desk.insert(prompt(9), 1, Sampling(top_logprobs=wanted))
    desk.run()
    (event,) = heard(sequence).token_events
    assert len(event.top) == given
    assert (event.logprob is None) == (wanted is None)
    assert list(event.top) == sorted(event.top, key=lambda pair: (-pair[1], pair[0]))


def test_seeded_tokens_do_not_depend_on_the_company(llama: Bench) -> None:
    wanted = Sampling(temperature=0.8, seed=7)
    expected = alone(llama, prompt(30), 12, wanted)
    desk = Desk(llama)
    desk.insert(prompt(12, seed=1), 30, Sampling(temperature=1.0))
    desk.decoder.step()
    desk.insert(prompt(12, seed=2), 5)
    sequence = desk.insert(prompt(30), 12, wanted)
    desk.run()
    assert heard(sequence).tokens == expected
    assert alone(llama, prompt(30), 12, replace(wanted, seed=8)) != expected


def test_a_penalty_is_for_its_own_request_alone(llama: Bench) -> None:
    biased = Sampling(logit_bias={70: 1000.0})
    expected = alone(llama, prompt(11), 6)
    desk = Desk(llama)
    plain, pushed = desk.insert(prompt(11), 6), desk.insert(prompt(11), 6, biased)
    desk.run()
    assert heard(plain).tokens == expected
    assert heard(pushed).tokens == [70] * 6


def test_who_is_cancelled_leaves_before_the_next_step_and_hears_of_it(llama: Bench) -> None:
    expected = alone(llama, prompt(25), 8)
    desk = Desk(llama)
    leaving, staying = desk.insert(prompt(40), 100), desk.insert(prompt(25), 8)
    desk.step_until(lambda: len(heard(leaving).tokens) == 1)
    leaving.cancel()
    leaving.cancel()
    assert len(desk.decoder) == 2
    desk.run()
    assert len(heard(leaving).tokens) == 1
    assert isinstance(heard(leaving).error, Cancelled)
    assert heard(leaving).ends == 1
    assert heard(staying).tokens == expected
    assert len(desk.decoder) == 0


def test_the_batch_starts_anew_after_everybody_was_cancelled(llama: Bench) -> None:
    desk = Desk(llama)
    for sequence in (desk.insert(prompt(40), 9), desk.insert(prompt(12), 9)):
        sequence.cancel()
    assert desk.decoder.step() is False
    sequence = desk.insert(prompt(25), 8)
    desk.run()
    assert heard(sequence).tokens == alone(llama, prompt(25), 8)


def test_who_cannot_join_leaves_the_others_alone(llama: Bench) -> None:
    expected = alone(llama, prompt(25), 8)
    recorder = Recorder(llama.model)
    desk = Desk(replace(llama, model=recorder))
    staying = desk.insert(prompt(25), 8)
    joining = llama.prefill(prompt(12))
    desk.decoder.step()
    begun = len(recorder.chunks)
    recorder.fails = lambda calls: calls == begun + 3  # two steps of who stays, then the newcomer's first
    sequence = Sequence(DecodeRequest("r", prompt(13), 8), Listener())
    desk.decoder.insert(sequence, joining)
    desk.run()
    assert isinstance(heard(sequence).error, RuntimeError)
    assert heard(sequence).ends == 1
    assert heard(staying).tokens == expected


def test_when_all_is_over_everybody_hears_why_once(llama: Bench) -> None:
    desk = Desk(llama)
    sequences = [desk.insert(prompt(9), 50), desk.insert(prompt(20), 50)]
    desk.decoder.step()
    error = EngineDead("over")
    desk.decoder.fail_all(error)
    desk.decoder.fail_all(error)
    assert [heard(sequence).error for sequence in sequences] == [error, error]
    assert [heard(sequence).ends for sequence in sequences] == [1, 1]
    assert desk.decoder.step() is False


def test_a_full_house_gives_its_memory_back(llama: Bench) -> None:
    desk = Desk(llama)
    mx.clear_cache()
    before = mx.get_active_memory()
    sequences: list[Any] = [desk.insert(prompt(600, seed=seed), 3) for seed in range(4)]
    assert mx.get_active_memory() - before > 500_000
    desk.run()
    assert all(heard(sequence).ended for sequence in sequences)
    assert memory_comes_back_to(before + 20_000)


def separate(groups: list[list[int]]) -> bool:
    return len(groups) > 1 and max(len(group) for group in groups) > 1


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_rows_of_very_different_length_are_decoded_apart_with_the_tokens_that_each_has_alone(
    bench_of: MakeBench, family: str
) -> None:
    bench = bench_of(family)
    prompts = [prompt(length, seed=length) for length in (5, 40, 300, 400, 9)]
    expected = [alone(bench, tokens, 25) for tokens in prompts]
    # Weights so small that every row pays for its padding.
    desk = Desk(bench, replace(bench.cost, group_bytes=int(bench.cost.row_bytes(100))))
    sequences = [desk.insert(tokens, 25) for tokens in prompts]
    seen: list[list[list[int]]] = []
    while desk.decoder.step():
        seen.append(desk.decoder.groups)
    assert [heard(sequence).tokens for sequence in sequences] == expected
    assert any(separate(groups) for groups in seen)
    assert not any(max(group) - min(group) > 150 for groups in seen for group in groups)


def test_rows_of_like_length_end_in_one_batch(llama: Bench) -> None:
    desk = Desk(llama)
    for seed in range(4):
        desk.insert(prompt(30, seed=seed), 200)
    desk.step_until(lambda: [len(group) for group in desk.decoder.groups] == [4])


def test_a_batch_is_divided_when_its_longest_row_costs_the_others_too_much(llama: Bench) -> None:
    desk = Desk(llama, StepCost(10**15, ((1.0, None),)))
    sequences = [desk.insert(prompt(length), 60) for length in (400, 20, 20)]
    desk.step_until(lambda: [len(group) for group in desk.decoder.groups] == [3])
    desk.decoder._cost = StepCost(100, ((1.0, None),))
    desk.step_until(lambda: [len(group) for group in desk.decoder.groups] == [2, 1])
    desk.run()
    assert heard(sequences[0]).tokens == alone(llama, prompt(400), 60)
    assert heard(sequences[1]).tokens == heard(sequences[2]).tokens == alone(llama, prompt(20), 60)


def test_newcomers_do_not_come_one_upon_the_other(llama: Bench) -> None:
    desk = Desk(llama)
    desk.insert(prompt(9), 200)
    desk.decoder.step()
    for seed in range(3):
        desk.insert(prompt(20, seed=seed), 200)
    rows = []
    while len(rows) < 20:
        desk.decoder.step()
        rows.append(sum(len(group) for group in desk.decoder.groups))
    assert rows[-1] == 4
    changes = [later - earlier for earlier, later in pairwise(rows)]
    assert max(changes) == 1
    assert all(not (first and second) for first, second in pairwise(changes))


def test_who_is_cancelled_before_joining_never_joins(llama: Bench) -> None:
    desk = Desk(llama)
    staying, leaving = desk.insert(prompt(25), 8), desk.insert(prompt(40), 100)
    assert len(desk.decoder) == 2
    desk.decoder.step()
    leaving.cancel()
    desk.run()
    assert isinstance(heard(leaving).error, Cancelled)
    assert (heard(leaving).tokens, heard(leaving).ends) == ([], 1)
    assert heard(staying).tokens == alone(llama, prompt(25), 8)
