"""Faults around a node's app, as peers meet them over HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import pytest

from kakeya_ops.errors import PeerBusy, PeerError, PeerRefused, PeerTimeout, PeerUnreachable, StreamCorrupt
from kakeya_ops.peer.connection import Timeouts
from kakeya_ops.serving import fault_meeting
from kakeya_ops.wire.drills import Act
from serving.drilled import HASHES, arm, fetch, look_up, make_node
from serving.running import TIMEOUTS, Served, block_hash

HASTY = Timeouts(connect_seconds=2.0, reply_seconds=0.3, silence_seconds=0.3)


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with Served(make_node()) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    yield shared
    shared.node.faults.disarm()


LOOKUPS: dict[Act, tuple[type[PeerError], str]] = {
    Act.SILENCE: (PeerTimeout, "timeout"),
    Act.HANG_UP: (PeerUnreachable, "unreachable"),
    Act.BUSY: (PeerBusy, "busy"),
    Act.POOL_FULL: (PeerRefused, "pool_full"),
    Act.OTHER_IDENTITY: (PeerRefused, "identity_mismatch"),
    Act.NONSENSE: (PeerRefused, "unreadable"),
    Act.WRONG_KEY: (PeerRefused, "signature_rejected"),
    Act.SKEWED_CLOCK: (PeerRefused, "signature_rejected"),
    Act.REPLAY: (PeerRefused, "signature_rejected"),
    Act.FORGED_REPLY: (StreamCorrupt, "corrupt"),
    Act.BOAST: (StreamCorrupt, "corrupt"),
}


@pytest.mark.parametrize("act", LOOKUPS)
def test_a_lookup_that_meets_a_fault_and_one_that_does_not(served: Served, act: Act) -> None:
    kind, word = LOOKUPS[act]
    client = served.client(timeouts=HASTY if act is Act.SILENCE else TIMEOUTS)
    assert look_up(served, client).resume_blocks == len(HASHES)
    arm(served, act, on="lookup", seconds=90 if act is Act.SKEWED_CLOCK else 0.6)
    with pytest.raises(kind) as caught:
        look_up(served, client)
    assert word in (caught.value.reason, getattr(caught.value, "code", None))
    assert served.node.faults.disarm() >= 1
    assert look_up(served, client).resume_blocks == len(HASHES)


def test_a_clock_that_is_off_by_less_than_the_window_is_no_fault(served: Served) -> None:
    arm(served, Act.SKEWED_CLOCK, on="lookup", seconds=30)
    assert look_up(served, served.client()).resume_blocks == len(HASHES)
    assert served.node.faults.disarm() == 1


def test_a_late_answer_is_an_answer(served: Served) -> None:
    client = served.client()
    arm(served, Act.DELAY, on="lookup", seconds=0.2)
    began = time.monotonic()
    assert look_up(served, client).resume_blocks == len(HASHES)
    assert time.monotonic() - began >= 0.2


def test_a_promise_is_not_kept(served: Served) -> None:
    arm(served, Act.PROMISE, on="lookup")
    unknown = [block_hash(index) for index in range(90, 93)]
    assert served.client().lookup(served.node.identity.digest, unknown).resume_blocks == 3


STREAMS: dict[Act, type[PeerError]] = {
    Act.CUT: PeerUnreachable,
    Act.STALL: PeerTimeout,
    Act.FLIP: StreamCorrupt,
    Act.FLIP_HEAD: StreamCorrupt,
    Act.GARBAGE: StreamCorrupt,
    Act.OVERSIZE: StreamCorrupt,
    Act.REPEAT: StreamCorrupt,
    Act.DROP: StreamCorrupt,
    Act.SWAP: StreamCorrupt,
    Act.FOREIGN: StreamCorrupt,
    Act.ERROR: PeerRefused,
    Act.OTHER_HEADER: StreamCorrupt,
}


Packing = Literal["exponents"]


@pytest.mark.parametrize("packing", [None, "exponents"])
@pytest.mark.parametrize("act", STREAMS)
def test_a_stream_that_meets_a_fault_and_one_that_does_not(served: Served, act: Act, packing: Packing | None) -> None:
    client = served.client(timeouts=HASTY if act is Act.STALL else TIMEOUTS)
    arm(served, act, on="fetch", seconds=0.6)
    with pytest.raises(STREAMS[act]):
        fetch(served, client, packing)
    assert served.node.faults.disarm() >= 1
    assert fetch(served, client, packing) == (len(HASHES), packing is not None)


@pytest.mark.parametrize("packing", [None, "exponents"])
@pytest.mark.parametrize("act", [Act.SLOW, Act.PAUSE])
def test_a_slow_or_paused_stream_is_whole(served: Served, act: Act, packing: Packing | None) -> None:
    arm(served, act, on="fetch", seconds=0.1, bytes_per_second=200_000)
    assert fetch(served, served.client(), packing) == (len(HASHES), packing is not None)
    assert served.node.faults.disarm() == 1


def test_a_process_is_ended_where_something_revives_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(fault_meeting, "end_process", lambda: ended.append("ended"))
    monkeypatch.setattr(served.node.faults, "revived", True)
    arm(served, Act.EXIT, on="lookup")
    with pytest.raises(PeerError):
        look_up(served, served.client())
    assert ended
