"""A Mac that nobody, or somebody else, is logged in to at the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows_deploy.deployed import Fleet, machine
from kakeya_ops.deploy.actions import Actions


def test_the_user_domain_serves_where_nobody_is_at_the_screen_and_is_found_again(
    operator_home: Path, tiny_llama: Path
) -> None:
    with machine(operator_home, "vault", gui_session="no") as lonely:
        fleet = Fleet(operator_home, tiny_llama, {"vault": lonely}, {"vault": "cache", "head": "head"})
        label = fleet.places("vault").label
        assert fleet.deploy("vault")["vault"].verdict == "done", fleet.notes
        assert lonely.mac.job(label, "user") is not None
        assert not fleet.plan("vault").pending

        # Somebody logs in: the service belongs at the screen now, and is loaded once.
        lonely.mac.set(gui_session="yes")
        assert any("loaded in user/" in reason for reason in fleet.plan("vault").hosts[0].reasons)
        assert fleet.deploy("vault")["vault"].verdict == "done", fleet.notes
        assert (lonely.mac.job(label, "user"), lonely.mac.job(label) is None) == (None, False)

        with fleet.hosts() as hosts:
            actions = Actions(fleet.inventory, hosts.asker, hosts.runner)
            plan = actions.plan(hosts.observe(["vault"]), actions.undeploy(purge=True))
            assert fleet.apply(hosts, plan)["vault"].verdict == "done"
        left = list(Path(fleet.places("vault").root).iterdir())
        assert left == [] or [path.name for path in left] == ["audit.jsonl"]


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"gui_session": "other"}, "somebody else is at the screen"),
        ({"gui_session": "no", "no_gui_status": 112}, "nobody is, and launchctl says so with 112"),
    ],
)
def test_a_screen_that_is_not_ours_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Path, knobs: dict[str, Any], why: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    with machine(tmp_path, "vault", **knobs) as lonely:
        fleet = Fleet(tmp_path, tiny_llama, {"vault": lonely}, {"vault": "cache", "head": "head"})
        label = fleet.places("vault").label
        assert fleet.deploy("vault")["vault"].verdict == "done", (why, fleet.notes)
        assert lonely.mac.job(label, "user") is not None
        assert b"<string>Background</string>" in Path(fleet.places("vault").plist).read_bytes()
        assert not fleet.plan("vault").pending
        asked = {word for call in lonely.mac.calls("launchctl") for word in call if word.startswith("gui/")}
        changed = [call for call in lonely.mac.calls("launchctl") if call[1] in ("bootstrap", "enable", "kickstart")]
        assert asked
        assert not [call for call in changed if any(word.startswith("gui/") for word in call)]
