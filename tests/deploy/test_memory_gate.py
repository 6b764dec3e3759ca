"""Observed hosts become assessments, and these the gate of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.states import bare, desired, inventory, job
from deploy.states import planner as make_planner
from kakeya_ops.deploy.memory_gate import assess_state, assess_states, gate_of, read_planned_model
from kakeya_ops.errors import ConnectFailed, RefusedError
from kakeya_ops.inventory import Inventory
from kakeya_ops.memory.demand import Overrides
from memory.machines import ABSENT, mac, process
from memory.public_models import QWEN3_30B, sized


def with_model(path: Path) -> Inventory:
    given = inventory()
    return given.model_copy(update={"model": given.model.model_copy(update={"path": str(path)})})


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    sized(folder, QWEN3_30B, 17.18e9)
    return folder


def test_hosts_that_were_observed_are_assessed_and_the_gate_says_what_was_found(model_folder: Path) -> None:
    fleet = with_model(model_folder)
    model = read_planned_model(fleet, fleet.hosts)
    states = {
        "allens": bare("allens", memory=mac(16)),
        "boris": ConnectFailed("boris", "no route"),
        "head": bare("head", memory=mac(64)),
    }
    found = assess_states(fleet, states, model)
    assert {name: one.verdict.answer for name, one in found.items()} == {"allens": "does not fit", "head": "fits"}
    plan = make_planner(inventory=fleet, gate=gate_of(found)).plan(states)
    assert [host.host.name for host in plan.hosts] == ["head"]
    assert plan.hosts[0].gate is not None
    assert plan.hosts[0].gate.answer == "fits"
    refusal = plan.failures["allens"]
    assert isinstance(refusal, RefusedError)
    assert "role: cache" in str(refusal.hint)
    assert gate_of(found)(fleet.host("boris"), bare("boris")) is None


def test_the_service_that_is_replaced_frees_what_it_holds(model_folder: Path) -> None:
    fleet = with_model(model_folder)
    ours = process(20, pid=42, name="kakeya worker", is_mlx_server=False, is_kakeya=True)
    host = mac(64, processes=(ours,), immediate_bytes=10 * 2**30)
    running = job(desired(make_planner(), "allens"), pid=42)
    model = read_planned_model(fleet, ["allens"])
    assert assess_state(fleet, fleet.host("allens"), bare("allens", memory=host), model).verdict.answer != "fits"
    replaced = bare("allens", memory=host, jobs=(running,))
    assert assess_state(fleet, fleet.host("allens"), replaced, model).verdict.answer == "fits"


def test_a_host_that_does_not_tell_is_judged_by_the_inventory_s_word(model_folder: Path) -> None:
    fleet = with_model(model_folder)
    silent = bare("allens", memory=mac(16, total_bytes=ABSENT, working_set_bytes=ABSENT, max_buffer_bytes=ABSENT))
    model = read_planned_model(fleet, ["allens"])
    assert assess_state(fleet, fleet.host("allens"), silent, model).verdict.answer == "unknown"
    told = fleet.host("allens").model_copy(update={"memory_gb": 96.0})
    assessment = assess_state(fleet, told, silent, model)
    assert (assessment.verdict.answer, assessment.verdict.pinned) == ("fits", True)


def test_a_cache_peer_needs_no_model(tmp_path: Path) -> None:
    fleet = with_model(tmp_path / "nowhere")
    assert read_planned_model(fleet, ["vault"]) is None
    assert assess_state(fleet, fleet.host("vault"), bare("vault", memory=mac(16)), None).verdict.answer == "fits"
    as_head = assess_state(fleet, fleet.host("vault"), bare("vault", memory=mac(16)), None, Overrides("cache", 100))
    assert as_head.question.load.context_tokens == 100
