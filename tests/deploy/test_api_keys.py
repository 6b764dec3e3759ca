"""The file of API keys is looked at on its host, and nothing else is."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY, bare, inventory
from deploy.states import planner as make_planner
from kakeya_ops.deploy.api_keys import CheckApiKeys, api_keys_steps
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError

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
