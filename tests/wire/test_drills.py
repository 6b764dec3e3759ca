from __future__ import annotations

import pytest

from kakeya_ops.errors import InputError
from kakeya_ops.wire.drills import FATAL, LONGEST_SECONDS, MOST_USES, ON_STREAMS, Act, DrillRequest, DrillState, Fault


def test_a_request_survives_the_wire() -> None:
    fault = Fault(act=Act.STALL, on="fetch", at="last", seconds=1.5, nonce="ab" * 16, uses=3, lifetime_seconds=9)
    for request in (DrillRequest(fault=fault), DrillRequest(fault=None)):
        assert DrillRequest.parse(request.encode()) == request
    state = DrillState(node="w", instance="ab" * 16, revived=False, armed=Act.CUT, met=2)
    assert DrillState.parse(state.encode()) == state


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("act", "explode"),
        ("on", "cards"),
        ("at", "end"),
        ("seconds", LONGEST_SECONDS + 1),
        ("seconds", -1),
        ("uses", 0),
        ("uses", MOST_USES + 1),
        ("lifetime_seconds", 0),
        ("lifetime_seconds", LONGEST_SECONDS + 1),
        ("nonce", "short"),
        ("bytes_per_second", 0),
        ("more", 1),
    ],
)
def test_nothing_lasts_or_reaches_further_than_a_drill_may(field: str, value: object) -> None:
    document = {"fault": {"act": "cut", field: value}}
    with pytest.raises(InputError, match=field):
        DrillRequest.parse(_encode(document))


def test_acts_on_streams_are_those_from_cut_on() -> None:
    assert {Act.CUT, Act.SLOW, Act.DIE, Act.WRONG_RECEIPT} <= ON_STREAMS
    assert not {Act.DELAY, Act.EXIT, Act.BOAST} & ON_STREAMS
    assert {Act.EXIT, Act.DIE} == FATAL


def _encode(document: object) -> bytes:
    import json

    return json.dumps(document).encode()
