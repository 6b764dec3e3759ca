"""A Mac whose memory is taken by another: the worker stays up without its model, tells why, and no head asks it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from flows_deploy.deployed import Fleet
from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.deploy.memory_gate import assess_states, gate_of, read_planned_model
from kakeya_ops.deploy.plan import Planner
from kakeya_ops.errors import RefusedError
from kakeya_ops.observe import HostState
from kakeya_ops.observe.state import Health, Unknown
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.wire.cards import Card

SECONDS = 100.0
OTHER_SERVER = (4711, 12 * 2**20, 12 * 2**20, "/opt/homebrew/bin/mlx_lm.server --model big")
"""Process id, resident set and footprint in KiB, command line."""


def observe(fleet: Fleet) -> HostState:
    with fleet.hosts() as hosts:
        state = hosts.observe(["allens"])["allens"]
    assert isinstance(state, HostState)
    return state


def wait_for_health(fleet: Fleet, healthy: bool) -> HostState:
    """The host once its node says so, also on its card: a request that was signed before it began is refused."""
    deadline = time.monotonic() + SECONDS
    while True:
        state = observe(fleet)
        if isinstance(state.health, Health) and state.health.healthy is healthy and isinstance(state.card, Card):
            return state
        assert time.monotonic() < deadline, (state.health, state.card)


def wait_until_head_knows(fleet: Fleet, client: HeadClient) -> dict[str, Any]:
    """What the head tells of the worker, once it has heard that it is not well."""
    deadline = time.monotonic() + SECONDS
    while True:
        node = next(node for node in client.network()["nodes"] if node["node"] == "allens")
        if node["reason"]:
            return dict(node)
        assert time.monotonic() < deadline, node


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_under_launchd_a_worker_without_room_stays_up_and_is_not_used(fleet: Fleet) -> None:
    mac, label = fleet.machines["allens"].mac, fleet.places("allens").label
    # The simulated programs answer the service too, as the real ones would.
    mac.set(job_path=f"{mac.bin}:/usr/bin:/bin:/usr/sbin:/sbin")
    results = fleet.deploy()
    assert [result.verdict for result in results.values()] == ["done", "done"], fleet.notes
    healthy = observe(fleet)
    assert healthy.health == Health(True)
    assert isinstance(healthy.card, Card)
    assert healthy.card.memory is not None
    assert (healthy.card.memory.peak_bytes or 0) > 0

    # Another server takes nearly all that the GPU may have; launchd starts the worker anew.
    mac.set(processes=(*mac.state.processes, OTHER_SERVER))
    runs = mac.wait_until_running(label).runs
    assert mac.launchctl("kickstart", "-k", f"{mac.domain()}/{label}").returncode == 0
    state = wait_for_health(fleet, healthy=False)
    assert isinstance(state.health, Health)
    for words in ("does not fit: working set", "mlx_lm.server (pid 4711, 12.0 GiB)"):
        assert words in str(state.health.reason)
    assert isinstance(state.card, Card)
    assert (state.card.healthy, state.card.identity, state.card.reason) == (False, None, state.health.reason)
    assert state.running
    assert "WITHOUT its model" in mac.home.joinpath(fleet.places("allens").log).read_text()

    # It is up, so launchd does not start it again and again, and the head goes on by itself.
    assert mac.wait_until_running(label).runs == runs + 1
    body = json.dumps({"prompt": "far away " * 60, "max_tokens": 4, "temperature": 0, "logprobs": 1}).encode()
    with HeadClient(f"http://{LOOPBACK}:{fleet.api_port}") as client:
        node = wait_until_head_knows(fleet, client)
        receipt = client.receipt(client.complete(body, {}).request_id)
    assert (node["usable"], node["healthy"]) == (False, False)
    assert "does not fit" in node["reason"]
    assert (receipt["remote"], receipt["fallback"]) == (None, None)

    # Deploy would be refused, before it changes anything.
    inventory = fleet.inventory
    states = {"allens": state}
    assessments = assess_states(inventory, states, read_planned_model(inventory, states))
    plan = Planner(inventory, fleet.material(), gate_of(assessments)).plan(states)
    assert isinstance(plan.failures["allens"], RefusedError)
    assert not plan.hosts

    # And back, once the other has ended.
    mac.set(processes=mac.state.processes[:2])
    assert mac.launchctl("kickstart", "-k", f"{mac.domain()}/{label}").returncode == 0
    again = wait_for_health(fleet, healthy=True)
    assert not isinstance(again.card, Unknown)
    assert again.card.identity == healthy.card.identity
