"""What a drill does before it breaks anything; whole drills are in tests/flows/test_drill.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kakeya_ops.drill.nodes import Operator
from kakeya_ops.drill.run import DrillPlan, run_drill
from kakeya_ops.errors import PeerUnreachable, RefusedError
from kakeya_ops.peer.connection import Endpoint
from serving.running import Served, make_cache
from verify.samples import KEY
from verify.scripted_head import ScriptedHead, serve


@pytest.fixture
def head() -> ScriptedHead:
    return ScriptedHead()


@pytest.fixture
def plan(head: ScriptedHead) -> Iterator[DrillPlan]:
    with serve(head, time.time) as url:
        yield DrillPlan(url, Operator(KEY, "t"), "head", {})


def drill(plan: DrillPlan) -> None:
    run_drill(plan, lambda text: None)


def test_without_a_worker_there_is_nothing_to_drill(head: ScriptedHead, plan: DrillPlan) -> None:
    head.nodes = []
    with pytest.raises(RefusedError, match="no worker to drill"):
        drill(plan)
    assert head.prompts == []


def test_another_worker_than_there_is_is_refused(plan: DrillPlan) -> None:
    with pytest.raises(RefusedError, match="nobody"):
        drill(replace(plan, worker="nobody"))


def test_a_worker_that_cannot_be_reached_from_here_is_said_before_anything_is_asked(
    head: ScriptedHead, plan: DrillPlan
) -> None:
    with pytest.raises(PeerUnreachable, match="worker"):
        drill(plan)
    assert head.prompts == []


def test_a_worker_that_takes_no_part_is_left_alone(head: ScriptedHead, plan: DrillPlan) -> None:
    with Served(make_cache("worker", keys=(KEY,))) as served:
        ways = {"worker": [Endpoint("127.0.0.1", served.port)]}
        with pytest.raises(RefusedError, match="no part in drills") as caught:
            drill(replace(plan, ways=ways))
    assert "fleet.drill" in str(caught.value.hint)
    assert head.prompts == []


def test_without_a_head_it_cannot_be_carried_out() -> None:
    with pytest.raises(PeerUnreachable):
        drill(DrillPlan("http://127.0.0.1:1", Operator(KEY, "t"), "head", {}))
