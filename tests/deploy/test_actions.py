"""What is done with what is installed, as plans."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from deploy.states import GUI, KEY, PLANNER_INVENTORY, USER, bare, desired, inventory, job, material, planner, settled
from kakeya_ops.deploy.actions import Actions, RemoveInstallation
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import DeployError, NothingToReturnTo
from kakeya_ops.deploy.plan import HostPlan, Planner
from kakeya_ops.errors import CommandTimeout
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.state import HostState, Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from serving.running import simple_identity

PLANNER = planner()
KEPT = ("quarantine.json", "receipts.jsonl")
"""What a head keeps beside its key."""
ACTIONS = Actions(inventory(PLANNER_INVENTORY.replace("tiny}", "tiny, sync: true}")), Asker(KEY, "ours"), LocalRunner)


def running(**changes: object) -> HostState:
    return settled(PLANNER, "allens", **changes)


def words(plan: HostPlan) -> list[str]:
    return [step.title.split(" in ")[0].split(",")[0] for step in plan.steps]


def test_stop_start_and_restart() -> None:
    assert words(ACTIONS.stop("allens", running())) == ["stop the service"]
    assert words(ACTIONS.stop("allens", running(jobs=()))) == []
    assert words(ACTIONS.start("allens", running())) == []
    started = ["start the service", "wait until it is healthy"]
    assert words(ACTIONS.start("allens", running(jobs=(), health=None))) == started
    assert words(ACTIONS.restart("allens", running())) == ["stop the service", *started]


def test_a_stop_reaches_every_domain() -> None:
    wanted = desired(PLANNER, "allens")
    plan = ACTIONS.stop("allens", running(jobs=(job(wanted), job(wanted, USER))))
    assert "gui/501 and user/501" in plan.steps[0].title


def test_what_is_not_installed_cannot_be_started() -> None:
    with pytest.raises(DeployError, match="not installed"):
        ACTIONS.start("allens", bare("allens"))


def test_what_launchd_does_not_tell_is_not_stopped_blindly() -> None:
    with pytest.raises(DeployError, match="unknown"):
        ACTIONS.stop("allens", running(jobs=Unknown("silent")))


def test_a_service_that_is_not_loaded_goes_where_it_was_installed_for(context: HostContext) -> None:
    folder = Path(context.places.generation("g1"))
    folder.mkdir(parents=True)
    for noted, expected in (('{"domain": "user/501"}', USER), ('{"domain": "gui/77"}', GUI), ("{", GUI)):
        (folder / "generation.json").write_text(noted)
        state = bare("allens", home=context.places.home, plist=b"x", generation="g1")
        assert expected.target in ACTIONS.restart("allens", state).steps[0].title


def test_the_generation_before_is_returned_to_as_it_was(context: HostContext) -> None:
    wanted = desired(PLANNER, "allens", home=context.places.home)
    folder = Path(context.places.generation("g1"))
    folder.mkdir(parents=True)
    for name, data in wanted.files(material()):
        (folder / name).write_bytes(data.replace(b"53052", b"60000"))
    state = running(home=context.places.home, generation="g2", previous="g1")
    plan = ACTIONS.rollback("allens", state)
    assert words(plan)[:4] == [
        "write the identity document",
        "stop the service",
        "write the property list",
        "start the service",
    ]
    assert words(plan)[-1] == "keep generation g1 as the current one"
    assert plan.after == "g1"
    assert plan.host.name == "allens"
    Path(folder, "identity.json").write_text("{}")
    with pytest.raises(NothingToReturnTo, match="identity document"):
        ACTIONS.rollback("allens", state)
    Path(folder, "identity.json").unlink()
    with pytest.raises(NothingToReturnTo, match="not whole"):
        ACTIONS.rollback("allens", state)


def write_generation(context: HostContext, id: str, name: str, plan: Planner) -> None:
    folder = Path(context.places.generation(id))
    folder.mkdir(parents=True)
    for file, data in desired(plan, name, home=context.places.home).files(plan.material):
        (folder / file).write_bytes(data)


@pytest.mark.parametrize(("name", "path", "refused"), [
    ("allens", "~/models/tiny", True),
    ("allens", "~/models/other", False),
    ("vault", "~/models/tiny", False),
])  # fmt: skip
def test_a_model_that_was_replaced_in_its_place_is_told_before_anything_is_touched(
    context: HostContext, name: str, path: str, refused: bool
) -> None:
    other = material(identity=simple_identity(weights="99" * 32))
    write_generation(context, "g1", name, PLANNER)
    new = inventory(PLANNER_INVENTORY.replace("~/models/tiny", path))
    write_generation(context, "g2", name, planner(inventory=new, material=other))
    state = settled(PLANNER, name, home=context.places.home, generation="g2", previous="g1")
    if not refused:
        assert words(ACTIONS.rollback(name, state))[-1] == "keep generation g1 as the current one"
        return
    with pytest.raises(NothingToReturnTo, match=r"the model in ~/models/tiny was replaced .* its weights") as caught:
        ACTIONS.rollback(name, state)
    assert "a new model in a new folder" in (caught.value.hint or "")


def test_without_a_generation_before_there_is_no_return() -> None:
    with pytest.raises(NothingToReturnTo):
        ACTIONS.rollback("allens", running(previous=None))


def test_an_undeploy_takes_what_deploy_put_there(context: HostContext) -> None:
    places = context.places
    root = Path(places.root)
    for folder in ("generations/g1", "programs/p1", "logs"):
        (root / folder).mkdir(parents=True)
    Path(places.model).mkdir(parents=True)
    for file in (places.key or "", places.identity, places.audit, *(f"{places.key}.allens.{end}" for end in KEPT)):
        Path(file).write_text("x")
    state = running(home=places.home)
    keeping, purging = (ACTIONS.undeploy(purge)("allens", state) for purge in (False, True))
    assert words(keeping)[:2] == ["stop the service", "remove the property list"]
    keeping.steps[-1].apply(context)
    assert sorted(path.name for path in root.iterdir()) == [
        "audit.jsonl",
        "fleet.key",
        *(f"fleet.key.allens.{end}" for end in KEPT),
    ]
    assert Path(places.model).is_dir()
    purging.steps[-1].apply(context)
    assert list(root.iterdir()) == []
    assert not Path(places.model).exists()


@pytest.mark.parametrize("model", ["/", "/Users", "~", "~/.kakeya", "~/x/..", "~/Library"])
def test_what_holds_more_than_a_model_is_not_purged(context: HostContext, model: str) -> None:
    folder = model.replace("~", context.places.home)
    context.places = dataclasses.replace(context.places, model=folder)
    with pytest.raises(DeployError, match="too much"):
        RemoveInstallation(purge=True, synced=True).apply(context)
    assert Path(context.places.root).is_dir()


def test_what_is_half_removed_does_not_come_back(context: HostContext, monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[str] = []
    context.undo("the service", lambda: returned.append("it"))

    def fail(*arguments: Any, **options: Any) -> Any:
        raise CommandTimeout("allens", ("rm",), 1, ended=False)

    monkeypatch.setattr(context.runner, "run", fail)
    with pytest.raises(CommandTimeout):
        RemoveInstallation(purge=False, synced=False).apply(context)
    assert (context.put_back(), returned) == ([], [])


def test_a_model_that_was_only_found_there_stays(context: HostContext) -> None:
    Path(context.places.model).mkdir(parents=True)
    RemoveInstallation(purge=True, synced=False).apply(context)
    assert Path(context.places.model).is_dir()


def test_nothing_is_removed_where_nothing_is() -> None:
    assert ACTIONS.undeploy(False)("allens", bare("allens")).steps == ()


def test_hosts_that_fail_are_told_beside_the_others() -> None:
    gone = DeployError("boris", "gone")
    plan = ACTIONS.plan({"allens": running(), "boris": gone, "vault": bare("vault")}, ACTIONS.restart)
    assert [host.host.name for host in plan.hosts] == ["allens"]
    assert set(plan.failures) == {"boris", "vault"}
    assert dataclasses.replace(plan).phases
