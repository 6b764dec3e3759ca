"""What would change is shown, without secrets."""

from __future__ import annotations

import dataclasses

from deploy.states import job, planner, settled
from kakeya_ops.deploy.diff import loaded_diff, plan_diff, plist_diff, served_diff
from kakeya_ops.deploy.plan import HostPlan

PLANNER = planner()
HOST = PLANNER.inventory.host("allens")


def plan(**changes: object) -> HostPlan:
    return PLANNER.plan_host(HOST, settled(PLANNER, "allens", **changes))


def test_equal_files_have_no_diff() -> None:
    assert plist_diff(plan()) == loaded_diff(plan()) == []


def test_a_new_service_is_all_plus_and_a_changed_one_shows_both() -> None:
    lines = plist_diff(plan(plist=None))
    assert all(line.startswith(("+", "---", "@@")) for line in lines)
    old = PLANNER.plan_host(HOST, settled(PLANNER, "allens")).desired
    assert old is not None
    changed = plist_diff(plan(plist=old.plist.replace(b"serve", b"swerve")))
    assert {line[0] for line in changed} >= {"+", "-"}
    assert old.places.plist in changed[0]


def test_what_launchd_has_loaded_is_compared_too() -> None:
    wanted = plan().desired
    assert wanted is not None
    lines = loaded_diff(plan(jobs=(job(wanted, arguments=("/bin/sleep", "1")),)))
    assert "-/bin/sleep" in lines
    assert "gui/501" in lines[0]


def test_the_values_that_change_are_shown() -> None:
    wanted = plan().desired
    assert wanted is not None
    lines = plan_diff(plan(plist=b"x", served=wanted.inventory.replace(b"block_tokens: 64", b"block_tokens: 32")))
    assert "-  block_tokens: 32" in lines
    assert "+  block_tokens: 64" in lines
    assert served_diff(plan(served=wanted.inventory)) == []


def test_secrets_of_the_old_file_are_hidden() -> None:
    lines = plist_diff(plan(plist=b"<plist>\nAPI_KEY=abcdefgh1234\n</plist>"))
    assert "abcdefgh1234" not in "\n".join(lines)


def test_actions_have_none() -> None:
    assert plist_diff(dataclasses.replace(plan(plist=None), desired=None)) == []
