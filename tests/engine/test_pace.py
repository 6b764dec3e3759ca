"""Turns of decoding and prefill on a clock that the work itself moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kakeya_ops.engine import pace as paces
from kakeya_ops.engine.pace import Pace

STEP_SECONDS, PIECE_SECONDS = 4.0, 1.0


@dataclass
class World:
    """A clock, somebody who decodes, and a prompt of some pieces."""

    streams: int
    pieces: int
    now: float = 0.0
    budgets: list[float | None] = field(default_factory=list)
    synchronized: int = 0

    def perf_counter(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.synchronized += 1


@dataclass
class Decoding:
    world: World

    def step(self) -> bool:
        self.world.now += STEP_SECONDS * self.world.streams
        return bool(self.world.streams)


@dataclass
class Prefilling:
    world: World

    def __len__(self) -> int:
        return min(self.world.pieces, 1)

    def step(self, budget_seconds: float | None) -> bool:
        world = self.world
        worked = bool(world.pieces)
        count = world.pieces if budget_seconds is None else min(int(budget_seconds / PIECE_SECONDS), world.pieces)
        world.budgets.append(budget_seconds)
        world.now += count * PIECE_SECONDS
        world.pieces -= count
        return worked


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    def build(streams: int, pieces: int) -> tuple[World, Pace]:
        world = World(streams, pieces)
        monkeypatch.setattr(paces, "time", world)
        monkeypatch.setattr(paces, "mx", world)
        decoder: Any = Decoding(world)
        prefills: Any = Prefilling(world)
        return world, Pace(decoder, prefills)

    return build


def test_with_nobody_decoding_a_chunk_runs_through(make: Any) -> None:
    world, pace = make(0, 30)
    assert pace.decode() is False
    assert pace.prefill() is True
    assert (world.pieces, world.budgets, world.synchronized) == (0, [None], 0)
    assert pace.prefill() is False


def test_a_prompt_beside_a_stream_takes_twice_its_time_and_the_stream_keeps_half_its_speed(make: Any) -> None:
    world, pace = make(1, 30)
    rounds = []
    while world.pieces:
        began = world.now
        assert pace.decode()
        pace.prefill()
        rounds.append(world.now - began)
    assert max(rounds) == 2 * STEP_SECONDS
    assert world.now <= 2 * 30 * PIECE_SECONDS + STEP_SECONDS
    assert world.synchronized == len(rounds)


def test_a_round_of_many_is_followed_by_as_much_prefill(make: Any) -> None:
    world, pace = make(3, 30)
    pace.decode()
    pace.prefill()
    assert world.budgets == [3 * STEP_SECONDS]


def test_decoding_alone_is_never_made_to_wait(make: Any) -> None:
    world, pace = make(2, 0)
    assert pace.decode()
    assert pace.prefill() is False
    assert world.synchronized == 0


def test_once_nobody_decodes_any_more_the_rest_runs_through(make: Any) -> None:
    world, pace = make(1, 30)
    pace.decode()
    pace.prefill()
    world.streams = 0
    pace.decode()
    pace.prefill()
    assert world.budgets == [STEP_SECONDS, None]
    assert world.pieces == 0
