"""The plan follows from what is and what shall be, and from nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.states import GUI, KEY, USER, FakeModel, FakeProgram, bare, card, desired, inventory, job, material, settled
from deploy.states import planner as make_planner
from kakeya_ops.deploy.gate import Verdict
from kakeya_ops.deploy.plan import HostPlan, Planner
from kakeya_ops.errors import RefusedError
from kakeya_ops.observe.state import Health, HostState, KeyFile, Unknown
from kakeya_ops.secret import Secret
from serving.running import simple_identity

PLANNER = make_planner()
WANTED = desired(PLANNER, "allens")
DIFFERENCES: dict[str, dict[str, Any]] = {
    "the service is not loaded": {"jobs": (), "health": None},
    "the property list differs": {"plist": b"<plist/>"},
    "the service is not installed": {"plist": None},
    "loaded in gui/501 and user/501": {"jobs": (job(WANTED), job(WANTED, USER))},
    "loaded in user/501": {"jobs": (job(WANTED, USER),)},
    "launchd runs it with other arguments": {"jobs": (job(WANTED, arguments=("/bin/sleep", "1")),)},
    "the service does not answer": {"health": None},
    "the node is not healthy: the pool": {"health": Health(False, "the pool")},
    "the node's cache identity is": {"card": card("allens", simple_identity(weights="99" * 32))},
    "the fleet key is missing": {"key": None},
    "the fleet key has mode 0644": {"key": KeyFile(0o644, PLANNER.material.key_digest or "")},
    "the fleet key differs": {"key": KeyFile(0o600, "0" * 64)},
    "the identity document is missing": {"identity": None},
    "the identity document is not": {"identity": b"{}"},
    "install the program": {"programs": frozenset({"older"})},
}


def plan_for(state: HostState, plan: Planner = PLANNER) -> HostPlan:
    return plan.plan_host(plan.inventory.host(state.host), state)


def titles(plan: HostPlan) -> list[str]:
    return [step.title for step in plan.steps]


@pytest.mark.parametrize("name", ["head", "allens", "vault"])
def test_nothing_is_to_be_done_where_nothing_differs(name: str) -> None:
    plan = plan_for(settled(PLANNER, name))
    assert (plan.steps, plan.reasons) == ((), ())


@pytest.mark.parametrize("reason", DIFFERENCES)
def test_each_difference_has_its_reason_and_restarts_the_service(reason: str) -> None:
    plan = plan_for(settled(PLANNER, "allens", **DIFFERENCES[reason]))
    assert any(reason in told for told in plan.reasons), plan.reasons
    assert plan.restarts
    assert [title for title in titles(plan) if title.startswith("start the service in gui/501")]
    assert titles(plan)[-1].startswith("keep generation")


@given(st.sets(st.sampled_from(sorted(DIFFERENCES))))
def test_the_same_state_makes_the_same_plan_and_steps_stand_in_one_order(chosen: set[str]) -> None:
    changes: dict[str, Any] = {}
    for reason in sorted(chosen):
        changes |= DIFFERENCES[reason]
    state = settled(PLANNER, "allens", **changes)
    first, second = plan_for(state), plan_for(state)
    assert first == second
    assert bool(first.steps) is bool(chosen)
    order = [
        "create",
        "install",
        "write the fleet",
        "write the id",
        "write gen",
        "stop",
        "write the prop",
        "start",
        "wait",
    ]
    places = [next(i for i, word in enumerate(order) if title.startswith(word)) for title in titles(first)[:-2]]
    assert places == sorted(places)


def test_a_bare_host_gets_everything() -> None:
    words = " / ".join(titles(plan_for(bare("allens"))))
    for step in ("install root", "install the program", "fleet key", "identity document", "property list", "healthy"):
        assert step in words
    assert "stop the service" not in words


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({"jobs": Unknown("silent")}, "launchd"),
        ({"health": Unknown("no curl")}, "health"),
        ({"card": Unknown("401")}, "card"),
    ],
)
def test_what_is_unknown_is_proved_without_a_restart(changes: dict[str, Any], doubt: str) -> None:
    plan = plan_for(settled(PLANNER, "allens", **changes))
    assert [doubt in reason for reason in plan.reasons] == [True]
    assert not plan.restarts
    assert [title.split()[0] for title in titles(plan)] == ["wait", "check", "keep"]


def test_a_model_that_is_sent_is_followed_by_its_cleaning_up_at_the_very_end() -> None:
    plan = make_planner(material=material(model=FakeModel(lacking=True)))
    assert titles(plan_for(settled(PLANNER, "allens"), plan))[-1] == "forget"


def test_a_host_s_ssh_concerns_nobody_and_its_endpoint_everybody() -> None:
    def others_change(**values: Any) -> set[str]:
        changed = inventory()
        host = changed.hosts["allens"].model_copy(update=values)
        changed = changed.model_copy(update={"hosts": {**changed.hosts, "allens": host}})
        plan = dataclasses.replace(PLANNER, inventory=changed)
        return {name for name in ("head", "boris", "vault") if plan_for(settled(PLANNER, name), plan).steps}

    host = inventory().hosts["allens"]
    assert others_change(install_root="/opt/kakeya", queue=3) == set()
    endpoint = host.endpoints[0].model_copy(update={"port": 60001})
    assert others_change(endpoints=(endpoint,)) == {"head", "boris", "vault"}


def test_a_program_of_another_content_is_another_generation() -> None:
    other = make_planner(material=material(program=FakeProgram("p2")))
    assert desired(other, "allens").generation != WANTED.generation


def test_another_python_alone_is_another_generation() -> None:
    changed = inventory()
    host = changed.hosts["allens"].model_copy(update={"python": "/opt/homebrew/bin/python3.13"})
    changed = changed.model_copy(update={"hosts": {**changed.hosts, "allens": host}})
    plan = plan_for(settled(PLANNER, "allens"), dataclasses.replace(PLANNER, inventory=changed))
    assert "the property list differs" in plan.reasons
    assert plan.after != WANTED.generation


def test_a_new_key_is_no_new_generation_and_yet_a_restart() -> None:
    other = make_planner(material=material(key=Secret(bytes(32))))
    plan = plan_for(settled(PLANNER, "allens"), other)
    assert (plan.after, plan.restarts) == (WANTED.generation, True)
    assert KEY.reveal().hex() not in repr(plan)


def test_workers_and_caches_come_before_heads() -> None:
    states = {name: bare(name) for name in PLANNER.inventory.hosts}
    plan = PLANNER.plan(states)
    assert [[host.host.name for host in phase] for phase in plan.phases] == [["allens", "boris", "vault"], ["head"]]


def test_a_gate_refuses_unless_it_is_forced() -> None:
    verdict = Verdict("does not fit", "15.6 GB of weights", "a smaller model")
    gated = make_planner(gate=lambda host, state: verdict if host.role == "worker" else None)
    plan = gated.plan({"allens": bare("allens"), "head": bare("head")})
    assert [host.host.name for host in plan.hosts] == ["head"]
    assert isinstance(plan.failures["allens"], RefusedError)
    forced = dataclasses.replace(gated, force="I know")
    planned = plan_for(bare("allens"), forced)
    assert planned.gate == verdict
    assert planned.desired is not None
    assert planned.desired.service.arguments[-2:] == ("--force", "I know")
    # Nobody forces what nothing refuses.
    head = plan_for(bare("head"), forced).desired
    assert head is not None
    assert "--force" not in head.service.arguments


def test_a_host_without_a_domain_cannot_be_planned() -> None:
    plan = PLANNER.plan({"allens": bare("allens", domains=(), jobs=())})
    assert "domain" in plan.failures["allens"].message


def test_the_screen_decides_about_the_domain() -> None:
    assert desired(PLANNER, "allens").domain.domain == GUI
    assert desired(PLANNER, "allens", console_uid=0, domains=(USER,)).domain.domain == USER
    assert desired(PLANNER, "allens", console_uid=Unknown("no stat")).domain.domain == USER
