"""The file of API keys is looked at on its host, and nothing else is."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY, bare, inventory, settled
from deploy.states import planner as make_planner
from kakeya_ops.deploy.api_keys import CheckApiKeys, api_keys_steps
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.observe import observe_host
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.state import ApiKeysFile, Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost

STEP = CheckApiKeys("~/its keys/$(touch evil)'\".yaml")


@pytest.fixture
def file(context: HostContext) -> Path:
    path = Path(STEP.path.replace("~", context.places.home, 1))
    path.parent.mkdir()
    path.write_text("key: tenant\n")
    path.chmod(0o600)
    return path


def test_a_file_of_its_user_alone_is_well_also_behind_a_link(context: HostContext, file: Path) -> None:
    STEP.apply(context)
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")
    STEP.apply(context)
    assert not list(Path(context.places.home).rglob("evil"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o666])
def test_a_file_that_others_can_read_is_refused(context: HostContext, file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(DeployError, match=r"hosts.allens.api.keys_file names ~/its keys") as caught:
        STEP.apply(context)
    assert "chmod 600" in (caught.value.hint or "")


@pytest.mark.system("root")
def test_a_file_of_another_user_is_refused(context: HostContext, file: Path) -> None:
    os.chown(file, 12345, 12345)
    with pytest.raises(DeployError, match="not its user's alone"):
        STEP.apply(context)


def test_a_file_that_is_not_there_or_no_file_is_refused(context: HostContext, file: Path) -> None:
    file.unlink()
    with pytest.raises(DeployError, match="no such file"):
        STEP.apply(context)
    file.mkdir()
    with pytest.raises(DeployError, match="no such file"):
        STEP.apply(context)


def test_it_is_the_first_step_of_a_head_with_keys_and_of_nobody_else() -> None:
    text = PLANNER_INVENTORY.replace("port: 8080}", "port: 8080, keys_file: ~/keys.yaml}")
    plan = dataclasses.replace(make_planner(), inventory=inventory(text))
    hosts = {name: plan.plan_host(plan.inventory.host(name), bare(name)) for name in ("head", "allens")}
    assert hosts["head"].steps[0] == CheckApiKeys("~/keys.yaml")
    assert not any(isinstance(step, CheckApiKeys) for step in hosts["allens"].steps)
    assert api_keys_steps(inventory().host("head")) == ()


@pytest.mark.parametrize(
    ("found", "says"), [(None, "no such file"), (ApiKeysFile(private=False), "not its user's alone to read")]
)
def test_a_plan_that_would_restart_a_head_without_its_keys_fails(found: ApiKeysFile | None, says: str) -> None:
    text = PLANNER_INVENTORY.replace("port: 8080}", "port: 8080, keys_file: ~/keys.yaml}")
    planner = dataclasses.replace(make_planner(), inventory=inventory(text))
    plan = planner.plan({"head": bare("head", api_keys=found), "allens": bare("allens", api_keys=found)})
    assert says in plan.failures["head"].message
    assert [host.host.name for host in plan.hosts] == ["allens"]
    # What runs is not touched for it, and what could not be looked at is looked at by the step.
    assert not planner.plan({"head": settled(planner, "head", api_keys=found)}).failures
    assert not planner.plan({"head": bare("head")}).failures
    assert not planner.plan({"head": bare("head", api_keys=ApiKeysFile(private=True))}).failures


@pytest.mark.parametrize(("mode", "expected"), [(0o600, ApiKeysFile(True)), (0o640, ApiKeysFile(False)), (None, None)])
def test_the_file_is_seen_when_a_host_is_read(mac: MacHost, mode: int | None, expected: ApiKeysFile | None) -> None:
    fleet = inventory(PLANNER_INVENTORY.replace("port: 8080}", "port: 8080, keys_file: ~/keys of mine/keys.yaml}"))
    if mode is not None:
        path = mac.home / "keys of mine/keys.yaml"
        path.parent.mkdir()
        path.touch()
        path.chmod(mode)
    state = observe_host(LocalRunner("head"), fleet, fleet.host("head"), Asker(None, "ours"))
    assert state.api_keys == expected
    other = observe_host(LocalRunner("allens"), fleet, fleet.host("allens"), Asker(None, "ours"))
    assert isinstance(other.api_keys, Unknown)
