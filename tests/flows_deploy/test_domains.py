"""A Mac that nobody is logged in to at the screen."""

from __future__ import annotations

from pathlib import Path

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
