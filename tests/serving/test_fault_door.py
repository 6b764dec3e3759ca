"""Faults around a node's app, as peers meet them over HTTP."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator

import pytest

from kakeya_ops.errors import (
    PeerBusy,
    PeerError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    RefusedError,
    StreamCorrupt,
)
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.peer.client import PeerClient, WantedBlock
from kakeya_ops.peer.connection import Timeouts
from kakeya_ops.serving import fault_door
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from kakeya_ops.wire.bodies import LookupReply
from kakeya_ops.wire.drills import Act, DrillRequest, DrillState, Fault
from kakeya_ops.wire.paths import DRILL_PATH
from serving.running import KEY, TENANT, TIMEOUTS, Served, block_hash, fill, make_caller, simple_identity

HASHES = [block_hash(index) for index in range(1, 6)]
HASTY = Timeouts(connect_seconds=2.0, reply_seconds=0.3, silence_seconds=0.3)


def make_node(*, drill: bool = True) -> Node:
    node = Node(
        NodeSettings(NodeId("cache"), "cache", TENANT, (KEY,), drill=drill), BlockPool(2**24), simple_identity()
    )
    fill(node.pool, node.identity.layout, HASHES)
    return node


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with Served(make_node()) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    yield shared
    shared.node.faults.disarm()


def arm(served: Served, act: Act, **more: object) -> None:
    served.node.faults.arm(Fault.model_validate({"act": act, "uses": 4, **more}))


def look_up(served: Served, client: PeerClient) -> LookupReply:
    return client.lookup(served.node.identity.digest, HASHES)


def fetch(served: Served, client: PeerClient) -> int:
    wanted = [WantedBlock(index, 0, hash) for index, hash in enumerate(HASHES)]
    return client.fetch(served.node.identity.digest, wanted, lambda arrival: None).parts


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


@pytest.mark.parametrize("act", STREAMS)
def test_a_stream_that_meets_a_fault_and_one_that_does_not(served: Served, act: Act) -> None:
    client = served.client(timeouts=HASTY if act is Act.STALL else TIMEOUTS)
    arm(served, act, on="fetch", seconds=0.6)
    with pytest.raises(STREAMS[act]):
        fetch(served, client)
    served.node.faults.disarm()
    assert fetch(served, client) == len(HASHES)


@pytest.mark.parametrize("act", [Act.SLOW, Act.PAUSE])
def test_a_slow_or_paused_stream_is_whole(served: Served, act: Act) -> None:
    arm(served, act, on="fetch", seconds=0.1, bytes_per_second=200_000)
    assert fetch(served, served.client()) == len(HASHES)
    assert served.node.faults.disarm() == 1


@pytest.mark.parametrize(("act", "on"), [(Act.EXIT, "lookup"), (Act.DIE, "fetch")])
def test_a_process_is_ended_where_something_revives_it(
    served: Served, act: Act, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(fault_door, "end_process", lambda: ended.append("ended"))
    monkeypatch.setattr(served.node.faults, "revived", True)
    arm(served, act, on=on)
    call = look_up if act is Act.EXIT else fetch
    with pytest.raises(PeerError):
        call(served, served.client())
    assert ended


def test_strangers_meet_no_fault_and_use_none_up(served: Served) -> None:
    arm(served, Act.HANG_UP, on="lookup", uses=1)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("POST", "/v1/kv/lookup", body=b"{}")
    assert connection.getresponse().status == 401
    connection.close()
    assert served.node.faults.disarm() == 0


def test_a_request_with_another_nonce_goes_by_whole(served: Served) -> None:
    arm(served, Act.HANG_UP, on="fetch", nonce="ab" * 16)
    assert fetch(served, served.client()) == len(HASHES)
    assert served.node.faults.disarm() == 0


def drill(served: Served, request: DrillRequest, key: object = KEY) -> tuple[int, bytes]:
    caller = make_caller("drill") if key is KEY else make_caller("drill", key)  # type: ignore[arg-type]
    body = request.encode()
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    headers = {} if key is None else caller.signer.sign("POST", DRILL_PATH, body, to="cache")
    connection.request("POST", DRILL_PATH, body=body, headers=headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, data


def test_faults_are_armed_and_disarmed_by_the_fleets_key_alone(served: Served) -> None:
    request = DrillRequest(fault=Fault(act=Act.HANG_UP, on="lookup"))
    assert drill(served, request, None)[0] == 401
    assert served.node.faults.armed is None
    status, data = drill(served, request)
    assert (status, DrillState.parse(data).armed) == (200, Act.HANG_UP)
    with pytest.raises(PeerUnreachable):
        look_up(served, served.client())
    state = DrillState.parse(drill(served, DrillRequest(fault=None))[1])
    assert (state.node, state.armed, state.met) == ("cache", None, 1)


def test_a_process_that_nothing_revives_is_not_to_be_ended(served: Served) -> None:
    status, data = drill(served, DrillRequest(fault=Fault(act=Act.EXIT, on="now")))
    assert (status, json.loads(data)["code"]) == (409, "refused")


def test_where_no_drill_may_be_there_is_no_door_to_faults() -> None:
    node = make_node(drill=False)
    with Served(node) as served:
        status, data = drill(served, DrillRequest(fault=None))
        assert (status, json.loads(data)["code"]) == (409, "refused")
        assert "fleet.drill" in json.loads(data)["hint"]
        with pytest.raises(RefusedError):
            node.faults.arm(Fault(act=Act.CUT))
