"""What is said of a fleet, from what was heard of it."""

from __future__ import annotations

import dataclasses

import pytest

from deploy.states import GUI, bare
from kakeya_ops.launchd import ServiceState
from kakeya_ops.memory.footprint import Footprint, Term
from kakeya_ops.observe.state import Health, Job
from kakeya_ops.status.asking import PeerAnswer
from kakeya_ops.status.board import Heard, Look, Told
from kakeya_ops.status.judging import Moment, judge
from kakeya_ops.status.life import SSH_SECONDS
from kakeya_ops.status.remote_asking import HostAnswer
from kakeya_ops.status.value import Identity, Memory, Service
from kakeya_ops.wire.cards import NodeMemory
from serving.running import simple_identity
from status.samples import (
    AT,
    NOW,
    answering,
    api,
    back,
    card,
    inventory,
    judged,
    seen_by_head,
    silent,
    whole,
    with_api,
)


def test_a_whole_fleet_serves() -> None:
    status = judged(whole())
    assert status.serves
    head, worker = status.nodes
    assert (head.node, head.role, head.state, head.model, head.problems) == ("head", "head", "healthy", "tiny", ())
    assert (worker.state, worker.model, worker.identity.equal, worker.identity.head) == (
        "healthy",
        "tiny",
        True,
        "head",
    )
    assert worker.card is not None
    assert (worker.card.jobs_done, worker.card.queued, worker.card.running, worker.card.uptime_seconds) == (
        2,
        0,
        1,
        100,
    )
    assert head.card is not None
    assert head.card.jobs_done == 3
    assert worker.service == Service("not asked", reason="no SSH")
    [reach] = worker.reaches
    assert (reach.head, reach.network, reach.rtt_seconds, reach.bytes_per_second) == ("head", "loopback", 0.0005, 1e9)
    assert (reach.to_node, reach.to_head) == (True, None)


def test_a_worker_that_does_not_answer_says_why_and_the_fleet_does_not_serve() -> None:
    status = judged(whole(allens=silent()))
    assert not status.serves
    assert status.node("allens").state == "unreachable"
    assert status.node("allens").problems == ("unreachable: nothing listens there",)
    assert status.node("head").serves


def test_a_worker_that_hangs_is_unreachable_and_its_last_figures_are_shown_with_their_age() -> None:
    hanging = dataclasses.replace(answering(card("allens")), peer=Look(1, began_at=NOW))
    worker = judged(whole(allens=hanging), later=20).node("allens")
    assert (worker.state, worker.problems) == ("unreachable", ("unreachable: no answer for 20 s",))
    assert worker.card is not None
    assert (worker.card.stale, worker.card.age_seconds) == (True, 20)
    assert "the last card is 20 s old: its figures are of then" in worker.notes
    assert worker.prefill_now_tokens_per_second is None


def test_before_the_first_answer_nothing_is_claimed() -> None:
    status = judged({"head": Heard(), "allens": Heard()})
    assert [node.state for node in status.nodes] == ["asking", "asking"]
    assert [node.serves for node in status.nodes] == [None, None]
    assert status.node("head").problems == ("no answer yet",)
    assert not status.serves
    assert set(status.totals.counters.values()) == {None}
    assert status.node("allens").identity == Identity()


def test_a_failing_engine_says_why() -> None:
    ill = answering(card("allens", healthy=False, reason="the compute thread has stopped"))
    worker = judged(whole(allens=ill)).node("allens")
    assert (worker.state, worker.serves) == ("failing", False)
    assert worker.problems == ("failing: the compute thread has stopped",)


def test_another_window_is_named() -> None:
    other = answering(card("allens", identity=dataclasses.replace(simple_identity(), window=64)))
    worker = judged(whole(allens=other)).node("allens")
    assert (worker.state, worker.serves, worker.identity.equal) == ("healthy", False, False)
    assert worker.problems == ("cannot help head: window is 64 here, None there",)
    assert worker.model is None


def test_a_node_that_is_up_without_its_model_says_why_and_differs_in_nothing() -> None:
    empty = card("allens", healthy=False, reason="the model does not fit", identity_document=None)
    heard = whole(allens=answering(empty.model_copy(update={"identity": None})))
    worker = judged(heard).node("allens")
    assert worker.problems == ("failing: the model does not fit",)
    assert worker.identity == Identity()


def test_a_cache_in_place_of_a_worker_is_named() -> None:
    assert judged(whole(allens=answering(card("allens", "cache")))).node("allens").problems == (
        "runs as a cache, and the inventory says worker",
    )


UNKNOWN = "not known whether head can use it: "
NOT_COMPARED, NOT_SAID = "its cache identity cannot be compared", "no API says whether it is reached"


def test_without_a_head_it_is_not_known_whether_a_worker_serves() -> None:
    status = judged(whole(head=silent()))
    worker = status.node("allens")
    assert (worker.state, worker.identity.equal, worker.serves) == ("healthy", None, None)
    assert worker.problems == (f"{UNKNOWN}{NOT_COMPARED}, and {NOT_SAID}",)
    assert not status.serves


def test_a_head_whose_identity_cannot_be_read_leaves_it_unknown_whether_a_worker_serves() -> None:
    head = with_api(
        answering(card("head", "head", identity_document={"of": "tomorrow"})), api({"allens": seen_by_head()})
    )
    status = judged(whole(head=head))
    assert status.node("allens").serves is None
    assert status.node("allens").problems == (UNKNOWN + NOT_COMPARED,)
    assert (status.node("head").serves, status.serves) == (True, False)


def test_a_card_that_another_node_passes_on_is_enough_while_it_is_new() -> None:
    told = Told(card("allens"), NOW - 3, "head")
    worker = judged(whole(allens=silent("no route", told, no_way=True))).node("allens")
    assert worker.serves
    assert worker.notes == ("not reached from here: no route; head has its card",)
    assert worker.card is not None
    assert worker.card.told_by == "head"
    worker = judged(whole(allens=silent("no route", told, no_way=True)), later=6).node("allens")
    assert (worker.state, worker.serves) == ("unreachable", False)


def test_a_head_that_does_not_reach_its_worker_is_shown() -> None:
    head = with_api(whole()["head"], api({"allens": seen_by_head("allens: no route", issued_at=None)}))
    worker = judged(whole(head=head, allens=answering(card("allens", links=(back("refused"),))))).node("allens")
    assert worker.problems == ("head does not reach it: no route",)
    assert (worker.reaches[0].one_way, worker.reaches[0].to_head) == (False, False)


def test_one_way_reachability_is_shown_as_such() -> None:
    head = with_api(whole()["head"], api({"allens": seen_by_head("no route")}))
    worker = judged(whole(head=head, allens=answering(card("allens", links=(back(),))))).node("allens")
    assert worker.problems == ("head does not reach it, though it reaches the head: no route",)
    assert worker.reaches[0].one_way
    assert "one way only: it reaches head, not the other way" in worker.notes


def test_a_worker_that_does_not_reach_the_head_which_reaches_it_is_shown_as_such() -> None:
    worker = judged(whole(allens=answering(card("allens", links=(back("refused"),))))).node("allens")
    assert (worker.reaches[0].one_way, worker.reaches[0].to_head) == (True, False)
    assert "one way only: head reaches it, not the other way" in worker.notes
    assert worker.serves


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"quarantine": {"reason": "its KV differs"}, "usable": False},
            "head has it in quarantine: its KV differs; see kakeya quarantine list",
        ),
        ({"conflict": True, "usable": False}, "head does not ask it: another running node has its id"),
        ({"usable": False}, "head does not ask it for a while after it failed"),
    ],
)
def test_what_keeps_a_head_from_asking_is_shown(changes: dict[str, bool], problem: str) -> None:
    head = with_api(whole()["head"], api({"allens": seen_by_head(**changes)}))
    assert judged(whole(head=head)).node("allens").problems == (problem,)


def test_a_wrong_key_is_shown_although_the_engine_is_well() -> None:
    answer = PeerAnswer(Health(True), None, fault="message rejected: wrong key")
    stranger = Heard(peer=Look[PeerAnswer]().succeed(answer))
    worker = judged(whole(allens=stranger)).node("allens")
    assert (worker.state, worker.serves) == ("healthy", False)
    assert worker.problems == ("its card cannot be had: message rejected: wrong key",)


def test_a_restart_is_told_for_a_while() -> None:
    restarted = dataclasses.replace(answering(card("allens")), restarts=1, restarted_at=NOW - 5)
    worker = judged(whole(allens=restarted)).node("allens")
    assert worker.restarts_seen == 1
    assert worker.notes == ("restarted, seen 5 s ago: its counters begin anew",)
    assert worker.serves


def test_an_api_that_wants_a_key_costs_links_and_the_knowledge_of_who_is_reached() -> None:
    closed = answering(card("head", "head")).with_look("api", Look().fail("its API asks for a key"))
    status = judged(whole(head=closed))
    assert (status.node("head").serves, status.node("allens").serves, status.serves) == (True, None, False)
    assert status.node("allens").problems == (UNKNOWN + NOT_SAID,)
    assert status.node("head").notes == ("no links and no reasons of fallbacks from it: its API asks for a key",)
    assert status.node("allens").reaches == ()
    assert status.totals.fallbacks_by_reason is None
    assert status.totals.counters["remote_jobs"] == 0


def test_what_ssh_said_counts_no_longer_once_a_look_hangs() -> None:
    running = bare("head", jobs=(Job(GUI, ServiceState("running", 4711)),))
    said = HostAnswer(running, api({"allens": seen_by_head()}))
    heard = whole()
    heard["head"] = answering(card("head", "head")).with_look("ssh", Look[HostAnswer]().succeed(said).begin(NOW))
    soon, late = (judged(heard, later=later) for later in (SSH_SECONDS, SSH_SECONDS + 1))
    assert (soon.node("head").service.state, soon.node("head").service.pid) == ("running", 4711)
    assert soon.node("allens").reaches
    assert late.node("head").service == Service("not reached", reason="no answer for 91 s")
    assert "not reached over SSH: no answer for 91 s" in late.node("head").notes
    assert late.node("allens").reaches == ()


def test_an_api_that_is_asked_over_ssh_only_says_why_it_says_nothing() -> None:
    head = answering(card("head", "head"))
    asked = head.with_look("ssh", Look[HostAnswer]().succeed(HostAnswer(bare("head"), api_fault="nothing listens")))
    refused = asked.with_look("api", Look().fail("it asks for a key"))
    for heard, said in (
        (head, "its API is on its host's loopback, where it is asked over SSH only"),
        (asked, "nothing listens"),
        (refused, "it asks for a key; nothing listens"),
    ):
        [note] = judged(whole(head=heard)).node("head").notes
        assert note == f"no links and no reasons of fallbacks from it: {said}"


def test_a_window_that_forgets_is_said() -> None:
    status = judged(whole(), "cache: {sink: 4, window: 2048}\n")
    assert status.notes == ("of longer prompts the first 4 and the last 2048 tokens are kept, others forgotten",)


def test_memory_is_compared_with_its_forecast_and_more_than_that_is_told() -> None:
    need = Footprint((Term("weights", 2**30, "", "weights", True), Term("pool", 2**31, "", "pool", False)), 0, "")
    for footprint_bytes, notes in ((2**29, 0), (2**31, 1)):
        memory = NodeMemory(active_bytes=None, peak_bytes=2**28, footprint_bytes=footprint_bytes)
        heard = whole(allens=answering(card("allens", memory=memory)))
        worker = judge(inventory(), heard, Moment(NOW, AT), {"allens": need}).node("allens")
        # A pool of which a MiB is used counts with that MiB.
        assert worker.memory == Memory(footprint_bytes, 2**28, 2**30 + 2**20)
        assert len([note for note in worker.notes if "less was forecast" in note]) == notes
        assert worker.serves
