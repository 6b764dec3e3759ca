"""Asking peers what they hold: all at once, within a limit, and whoever fails is left out and told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest

from kakeya_ops.errors import PeerBusy, PeerError, PeerTimeout
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.neighbours import Inquiry, survey
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.receipts import RemotePart
from kakeya_ops.serving.scheduler import Candidate
from kakeya_ops.serving.supply import Source
from serving.running import hash_prompt, simple_identity

PROMPT = hash_prompt(simple_identity(), tuple(range(40)))


def candidate(node: str) -> Candidate:
    return Candidate(node, True, 1, 100.0, 0.0, 0.001, 1e6)


class Peer:
    """Answers with a candidate or an error; without `answer` only when it is let go."""

    def __init__(self, node: str, answer: Candidate | Exception | None = None) -> None:
        self.node = node
        self.answer = answer
        self.go = threading.Event()
        self.asked = threading.Event()

    def look_up(self, prompt: Prompt, stop: StopFlag) -> Candidate:
        self.asked.set()
        if self.answer is None:
            while not self.go.wait(0.01):
                if stop.stopped:
                    raise CallAborted(self.node)
            raise PeerBusy(self.node, 1.0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def source(self) -> Source:
        return cast(Source, self)


class Street:
    def __init__(self, *peers: Peer) -> None:
        self.peers = peers
        self.failures: list[str] = []

    def usable(self) -> tuple[Peer, ...]:
        return self.peers

    def engaged(self, node: str, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, node: str, reason: str) -> None:
        self.failures.append(node)

    def succeeded(self, node: str) -> None: ...

    def transferred(self, remote: RemotePart) -> None: ...


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def ask(street: Street, executor: ThreadPoolExecutor, limit_seconds: float = 20.0) -> Any:
    return survey(street, Inquiry(PROMPT, StopFlag(), limit_seconds), executor)


def test_nobody_is_there(executor: ThreadPoolExecutor) -> None:
    found = ask(Street(), executor)
    assert (found.candidates, found.sources, found.faults) == ((), {}, ())


def test_who_answers_is_a_candidate_with_a_source(executor: ThreadPoolExecutor) -> None:
    street = Street(Peer("a", candidate("a")), Peer("b", candidate("b")))
    found = ask(street, executor)
    assert [one.node for one in found.candidates] == ["a", "b"]
    assert found.sources == {"a": street.peers[0], "b": street.peers[1]}
    assert street.failures == []


def test_only_the_one_that_is_wanted_is_asked(executor: ThreadPoolExecutor) -> None:
    street = Street(Peer("a", candidate("a")), Peer("b", candidate("b")))
    found = survey(street, Inquiry(PROMPT, StopFlag(), 20.0, "b"), executor)
    assert [one.node for one in found.candidates] == ["b"]
    assert not street.peers[0].asked.is_set()


def test_who_fails_is_left_out_and_told(executor: ThreadPoolExecutor) -> None:
    error = PeerBusy("a", 3.0)
    street = Street(Peer("a", error), Peer("b", candidate("b")))
    found = ask(street, executor)
    assert [one.node for one in found.candidates] == ["b"]
    assert found.faults == (error,)
    assert street.failures == ["a"]


def test_who_is_late_is_left_out_and_told(executor: ThreadPoolExecutor) -> None:
    late = Peer("a")
    street = Street(late, Peer("b", candidate("b")))
    found = ask(street, executor, 0.05)
    assert [one.node for one in found.candidates] == ["b"]
    assert [(type(fault), fault.peer) for fault in found.faults] == [(PeerTimeout, "a")]
    assert street.failures == ["a"]
    assert found.seconds >= 0.05
    late.go.set()


def test_several_late_ones_cost_the_limit_once(executor: ThreadPoolExecutor) -> None:
    late = [Peer(name) for name in "abc"]
    began = time.monotonic()
    found = ask(Street(*late), executor, 4.0)
    assert len(found.faults) == 3
    assert time.monotonic() - began < 11
    for peer in late:
        peer.go.set()


def test_when_the_client_leaves_nobody_is_blamed(executor: ThreadPoolExecutor) -> None:
    peer, stop = Peer("a"), StopFlag()
    street = Street(peer)
    threading.Thread(target=lambda: (peer.asked.wait(20), stop.stop())).start()
    found = survey(street, Inquiry(PROMPT, stop, 20.0), executor)
    assert (found.candidates, found.faults, street.failures) == ((), (), [])


def test_a_bug_is_not_taken_for_a_fault_of_the_peer(executor: ThreadPoolExecutor) -> None:
    assert not issubclass(ZeroDivisionError, PeerError)
    with pytest.raises(ZeroDivisionError):
        ask(Street(Peer("a", ZeroDivisionError())), executor)
