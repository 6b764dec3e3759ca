"""Who meets a fault and who does not; what happens to whoever does is in test_fault_meeting.py."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator

import pytest

from kakeya_ops.errors import PeerUnreachable, RefusedError
from kakeya_ops.wire.drills import Act, DrillRequest, DrillState, Fault
from kakeya_ops.wire.paths import DRILL_PATH, LOOKUP_PATH
from serving.drilled import HASHES, arm, fetch, look_up, make_node
from serving.running import KEY, Served, make_caller


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with Served(make_node()) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    yield shared
    shared.node.faults.disarm()


def post(served: Served, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("POST", path, body=body, headers=headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, data


def test_strangers_meet_no_fault_and_use_none_up(served: Served) -> None:
    arm(served, Act.HANG_UP, on="lookup", uses=1)
    assert post(served, LOOKUP_PATH, b"{}", {})[0] == 401
    assert served.node.faults.disarm() == 0


@pytest.mark.parametrize("act", [Act.SKEWED_CLOCK, Act.WRONG_KEY, Act.PROMISE])
def test_a_body_that_was_not_signed_meets_no_fault_and_is_refused_for_that(served: Served, act: Act) -> None:
    arm(served, act, on="lookup", seconds=1)
    headers = make_caller("head").signer.sign("POST", LOOKUP_PATH, b'{"hashes": []}', to="cache")
    status, data = post(served, LOOKUP_PATH, b'{"hashes": [1]}', headers)
    assert (status, json.loads(data)["message"]) == (401, "request rejected: wrong body")
    assert served.node.faults.disarm() == 0


def test_a_request_with_another_nonce_goes_by_whole(served: Served) -> None:
    arm(served, Act.HANG_UP, on="fetch", nonce="ab" * 16)
    assert fetch(served, served.client()) == (len(HASHES), False)
    assert served.node.faults.disarm() == 0


def drill(served: Served, request: DrillRequest, key: object = KEY) -> tuple[int, bytes]:
    caller = make_caller("drill") if key is KEY else make_caller("drill", key)  # type: ignore[arg-type]
    body = request.encode()
    headers = {} if key is None else caller.signer.sign("POST", DRILL_PATH, body, to="cache")
    return post(served, DRILL_PATH, body, headers)


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
