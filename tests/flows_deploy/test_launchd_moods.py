"""What launchd does wrong while a service is exchanged: where it passes, the new generation runs, otherwise the old.

Here launchd's jobs only sleep, and one node is served by the tests' process all the time: starting one for each job
would take most of the time. Jobs that are nodes themselves are in `test_failures`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows_deploy.changing import FEW_TRIES, NAME, Before, Idle, serves, trouble
from flows_deploy.deployed import Fleet, machine
from kakeya_ops.deploy.errors import DeployError, NotHealthy, ServiceError
from kakeya_ops.errors import CommandTimeout, KakeyaError
from serving.running import Served, make_cache


@pytest.fixture(scope="module")
def installed(operator_home: Path, tiny_llama: Path) -> Iterator[Fleet]:
    with machine(operator_home, NAME) as mac:
        fleet = Fleet(operator_home, tiny_llama, {NAME: mac}, {NAME: "cache", "head": "head"})
        fleet.program = Idle()
        material = fleet.material()
        assert material.key is not None
        with Served(make_cache(NAME, keys=(material.key,), identity=material.identity)) as node:
            fleet.ports[NAME] = node.port
            fleet.change_host(NAME, endpoints=[fleet.document["hosts"][NAME]["endpoints"][0] | {"port": node.port}])
            assert fleet.deploy(NAME)[NAME].good, fleet.notes
            yield fleet


@pytest.fixture
def fleet(changing: Fleet) -> Fleet:
    return changing


PASSING: dict[str, dict[str, Any]] = {
    "busy": {"eio_next_bootstraps": 2, "bootout_linger_seconds": 0.5},
    "does not start what it loads": {"bootstrap_ok_but_not_started": True, "eio_next_kickstarts": 1},
    "blocks until a bootout is done": {"bootout_blocks": True, "bootout_linger_seconds": 0.5},
    "loses a bootout": {"eio_next_bootouts": 1, "latency_seconds": 0.1},
    "of macOS 10.15": {"profile": "catalina", "bootout_linger_seconds": 0.5},
    "of root, and disables what it boots out": {"profile": "root", "bootout_disables": True},
    "without a user domain": {"user_domain": False, "disabled_bootstrap_status": 119, "bootout_disables": True},
}


@pytest.mark.parametrize("mood", PASSING)
def test_a_mood_that_passes_is_no_failure(fleet: Fleet, mood: str) -> None:
    fleet.machines[NAME].mac.set(**PASSING[mood])
    result = fleet.deploy(NAME)[NAME]
    assert result.verdict == "done", (result, fleet.notes[-20:])
    serves(fleet, result.after)


def test_a_disabled_label_is_enabled(fleet: Fleet) -> None:
    mac = fleet.machines[NAME].mac
    mac.launchctl("disable", f"{mac.domain()}/{fleet.places(NAME).label}")
    result = fleet.deploy(NAME)[NAME]
    assert result.verdict == "done"
    serves(fleet, result.after)


FAILING: dict[str, tuple[str, dict[str, Any], type[KakeyaError], str]] = {
    "always 5": ("start", {"eio_next_bootstraps": 99}, ServiceError, "bootstrap .* failed with 5"),
    "0, and nothing is loaded": ("start", {"bootstrap_ok_but_absent": True}, ServiceError, "bootstrap"),
    "no room for logs": ("start", {"spawn_fail": "78"}, NotHealthy, "last exit: 78: EX_CONFIG"),
    "not signed": ("start", {"spawn_fail": "codesigning"}, NotHealthy, "OS_REASON_CODESIGNING"),
    "never started": (
        "start",
        {"bootstrap_ok_but_not_started": True, "eio_next_kickstarts": 999},
        ServiceError,
        "launchd does not start it",
    ),
    "the user logs out, 125": ("start", {"gui_session": "no"}, ServiceError, "125: Domain does not"),
    "the user logs out, 5": ("start", {"gui_session": "no", "no_gui_bootstrap_status": 5}, ServiceError, "with 5"),
    "the user logs out, 0": ("start", {"gui_session": "no", "no_gui_bootstrap_status": 0}, ServiceError, "with 0"),
    "home on another disk": ("start", {"home_on_volume": True}, ServiceError, "with 5"),
    "a label that stays": ("stop", {"bootout_linger_seconds": 600.0}, ServiceError, "did not go within"),
    "bootstrap hangs": ("start", {"hang": ("bootstrap",)}, CommandTimeout, "launchctl"),
    "print hangs": ("write the prop", {"hang": ("print",)}, CommandTimeout, "launchctl"),
}

ENDLESS: dict[str, dict[str, float]] = {
    "never started": {"pid": 5.0},
    "a label that stays": {"gone": 5.0},
    "bootstrap hangs": {"call": 10.0},
    "print hangs": {"call": 10.0},
}
"""What is waited for in vain, and so not long. The way back takes such calls too, which must begin in half the time."""


@pytest.mark.parametrize("mood", FAILING)
def test_a_mood_that_lasts_ends_with_the_old_generation(fleet: Fleet, mood: str) -> None:
    step, knobs, kind, said = FAILING[mood]
    before = Before(fleet)
    trouble(fleet, step, **knobs)
    result = fleet.deploy(NAME, timing=dataclasses.replace(FEW_TRIES, **ENDLESS.get(mood, {})))[NAME]
    assert isinstance(result.error, kind), (result, fleet.notes[-20:])
    with pytest.raises(kind, match=said):
        raise result.error
    before.is_back(result)


def test_a_launchctl_that_hangs_before_anything_is_stopped(fleet: Fleet) -> None:
    before = Before(fleet)
    trouble(fleet, "stop", hang=("print",))
    result = fleet.deploy(NAME, timing=dataclasses.replace(FEW_TRIES, call=6.0))[NAME]
    assert isinstance(result.error, CommandTimeout)
    before.is_back(result, same_process=True)


def _open_to_others(path: Path) -> None:
    path.chmod(0o664)


def _not_a_plist(path: Path) -> None:
    path.write_bytes(b"<plist><dict>")


@pytest.mark.parametrize("spoil", [_open_to_others, _not_a_plist])
def test_a_property_list_that_launchd_refuses(fleet: Fleet, spoil: Callable[[Path], None]) -> None:
    before, plist = Before(fleet), Path(fleet.places(NAME).plist)
    fleet.at_step = lambda title: spoil(plist) if title.startswith("start") else None
    result = fleet.deploy(NAME, timing=FEW_TRIES)[NAME]
    assert isinstance(result.error, ServiceError)
    before.is_back(result)


def test_a_property_list_behind_a_link_is_left_alone(fleet: Fleet) -> None:
    """launchd might not load it again, so that the service is not even stopped."""
    before, plist = Before(fleet), Path(fleet.places(NAME).plist)
    elsewhere = plist.with_suffix(".kept")
    plist.rename(elsewhere)
    plist.symlink_to(elsewhere)
    result = fleet.deploy(NAME)[NAME]
    assert isinstance(result.error, DeployError)
    assert "is a symbolic link" in result.error.message
    plist.unlink()
    elsewhere.rename(plist)
    before.is_back(result, same_process=True)


def test_a_job_that_is_loaded_twice_is_loaded_once_afterwards(fleet: Fleet) -> None:
    mac, label = fleet.machines[NAME].mac, fleet.places(NAME).label
    mac.preload({"Label": label, "ProgramArguments": ["/bin/sleep", "1000"], "RunAtLoad": True}, "user")
    plan = fleet.plan(NAME)
    assert any("is loaded in gui" in reason for reason in plan.hosts[0].reasons)
    assert fleet.deploy(NAME)[NAME].verdict == "done"
    assert mac.job(label, "user") is None


def test_a_file_that_was_rewritten_under_a_running_job_is_noticed(fleet: Fleet) -> None:
    assert fleet.deploy(NAME)[NAME].verdict == "done"
    mac, places = fleet.machines[NAME].mac, fleet.places(NAME)
    planned = Path(places.plist).read_bytes()
    mac.launchctl("bootout", f"{mac.domain()}/{places.label}")
    mac.wait_until_gone(places.label)
    mac.preload({"Label": places.label, "ProgramArguments": ["/bin/sleep", "1000"], "RunAtLoad": True})
    Path(places.plist).write_bytes(planned)
    reasons = fleet.plan(NAME).hosts[0].reasons
    assert "launchd runs it with other arguments" in reasons
    assert fleet.deploy(NAME)[NAME].verdict == "done"
