"""Equal prompts wait for one prefill, which outlives its client for a while; on timers of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine_bench import BLOCK_TOKENS
from engine_requests import Gate
from kakeya_ops.engine.contract import FailedEvent, PrefillEvent, TokenEvent
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.grace import NO_GRACE, Grace
from kakeya_ops.serving.underway import MOST_LEFT, Lead, Underway
from serving.test_head import LENGTH, PLACES, Town, engine, town
from waiting import wait_until

__all__ = ["engine", "town"]

NAME = (b"hash", "tenant")
OTHER = (b"other", "tenant")


class Clocked:
    """The book, timers that ring when the clock is moved, and what was lost and given up."""

    def __init__(self, grace_seconds: float = 10.0) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lost: list[int] = []
        self.given_up: list[str] = []
        self.book = Underway(self.lost.append, Grace(grace_seconds, self.later), lambda: self.now)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, act))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, act in due:
            act()

    def lead(self, name: tuple[bytes, str] = NAME) -> Lead:
        lead, mine = self.book.enter(name)
        assert mine
        return lead

    def leave(self, lead: Lead) -> bool:
        return lead.linger(lambda: self.given_up.append("x"))


def test_one_leads_and_the_others_wait_until_its_first_token() -> None:
    town = Clocked()
    lead = town.lead()
    assert town.book.enter(NAME) == (lead, False)
    assert town.book.enter(OTHER)[1]
    lead.hear(PrefillEvent(64, 64))
    assert town.book.enter(NAME) == (lead, False)
    lead.hear(TokenEvent(5))
    lead.wait(lambda: False, lambda event: None)
    assert town.book.enter(NAME)[1]
    assert town.lost == []


def test_one_that_fails_lets_another_lead_and_what_it_computed_is_lost() -> None:
    town = Clocked()
    lead = town.lead()
    lead.resumed_tokens = 32
    lead.hear(PrefillEvent(96, 300))
    lead.hear(FailedEvent(Cancelled()))
    lead.hear(FailedEvent(Cancelled()))
    assert town.lost == [64]
    assert town.book.enter(NAME)[1]


def test_what_came_from_a_peer_was_not_computed_here() -> None:
    town = Clocked()
    lead = town.lead()
    lead.hear(PrefillEvent(96, 300, "worker"))
    lead.hear(FailedEvent(Cancelled()))
    assert town.lost == []


def test_one_whose_client_has_left_goes_on_to_the_prefills_end_and_no_further() -> None:
    town = Clocked()
    lead = town.lead()
    assert town.leave(lead)
    lead.hear(PrefillEvent(64, 128))
    assert town.given_up == []
    lead.hear(PrefillEvent(128, 128))
    assert (town.given_up, town.lost) == (["x"], [128])
    lead.wait(lambda: False, lambda event: None)
    town.pass_time(100)
    assert town.given_up == ["x"]


def test_it_is_given_up_when_nobody_comes_back_within_the_grace() -> None:
    town = Clocked()
    lead = town.lead()
    assert town.leave(lead)
    town.pass_time(9.9)
    assert town.given_up == []
    town.pass_time(0.2)
    assert town.given_up == ["x"]


def test_each_resend_renews_the_grace() -> None:
    town = Clocked()
    lead = town.lead()
    assert town.leave(lead)
    for _ in range(5):
        town.pass_time(8)
        looks = iter([False, True])
        lead.wait(lambda: next(looks), lambda event: None)  # noqa: B023 - used up at once
        assert town.given_up == []
    town.pass_time(10.1)
    town.pass_time(10.1)
    assert town.given_up == ["x"]


def test_whoever_waits_for_one_without_a_client_is_told_its_progress() -> None:
    town, told = Clocked(), list[PrefillEvent]()
    lead = town.lead()
    lead.hear(PrefillEvent(64, 128))
    looks = iter([False, True])
    lead.wait(lambda: next(looks), told.append)
    assert told == []  # its own client is told
    assert town.leave(lead)
    looks = iter([False, False, True])
    lead.wait(lambda: next(looks), told.append)
    assert told == [PrefillEvent(64, 128)]


@pytest.mark.parametrize("grace", [NO_GRACE, Grace(0.0)])
def test_without_grace_nothing_outlives_its_client(grace: Grace) -> None:
    book = Underway(lambda tokens: None, grace)
    lead, _ = book.enter(NAME)
    assert not lead.linger(lambda: None)


def test_only_so_many_outlive_their_clients_and_none_that_has_ended() -> None:
    town = Clocked()
    leads = [town.lead((bytes([index]), "tenant")) for index in range(MOST_LEFT + 1)]
    assert [town.leave(lead) for lead in leads] == [True] * MOST_LEFT + [False]
    leads[0].hear(TokenEvent(1))
    assert town.leave(leads[-1])
    assert not town.leave(leads[0])


def test_a_client_that_gives_up_and_resends_costs_one_prefill(town: Town) -> None:
    alone = town.settings(policy="local_only", grace_seconds=60.0)
    length = 40 * BLOCK_TOKENS + 5
    for _ in range(5):
        gate = Gate(town.engine)
        asked = alone.ask(60, length=length)
        wait_until(lambda: town.engine.queued > 0 or alone.counted(CounterName.REQUESTS_JOINED) > 0)
        asked.ticket.cancel()
        gate.open()
        assert isinstance(asked.error(), Cancelled)
    answered = alone.ask(60, length=length)
    assert len(answered.tokens()) == 6
    computed = alone.counted(CounterName.TOKENS_COMPUTED_LOCAL) + alone.counted(CounterName.TOKENS_ABANDONED)
    assert length <= computed <= 1.1 * length
    assert answered.tokens() == alone.ask(60, "local", length=length).tokens()


def test_equal_prompts_at_once_are_one_prefill(town: Town) -> None:
    alone = town.settings(policy="local_only")
    gate = Gate(town.engine)
    asked = [alone.ask(61) for _ in range(PLACES)]
    wait_until(lambda: alone.counted(CounterName.REQUESTS_JOINED) == PLACES - 1)
    gate.open()
    assert len({tuple(one.tokens()) for one in asked}) == 1
    assert alone.counted(CounterName.TOKENS_COMPUTED_LOCAL) == LENGTH + (PLACES - 1) * 5
    assert max(one.receipt().times["queued"] for one in asked) > 0


def test_one_who_waits_for_an_equal_prompt_may_leave(town: Town) -> None:
    alone = town.settings(policy="local_only")
    gate = Gate(town.engine)
    first, second = alone.ask(62), alone.ask(62)
    wait_until(lambda: alone.counted(CounterName.REQUESTS_JOINED) == 1)
    second.ticket.cancel()
    gate.open()
    assert isinstance(second.error(), Cancelled)
    assert len(first.tokens()) == 6
