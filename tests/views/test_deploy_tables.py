from __future__ import annotations

import io

from rich.console import Console, RenderableType

from deploy.states import bare, planner, settled
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.cross_check import Check
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.gate import Verdict
from kakeya_ops.views.deploy_tables import check_table, failure_view, history_view, plan_view, result_table


def words(*renderables: RenderableType) -> str:
    """What a reader without colours sees."""
    out = io.StringIO()
    for renderable in renderables:
        Console(file=out, width=200).print(renderable)
    return " ".join(out.getvalue().split())


def test_a_plan_shows_reasons_diff_steps_and_who_cannot_be_planned() -> None:
    made = planner(gate=lambda host, state: Verdict("tight", "1 GB left"))
    states = {"allens": bare("allens", lock=b""), "head": settled(made, "head"), "boris": DeployError("boris", "gone")}
    shown = words(*plan_view(made.plan(states)))
    for part in (
        "allens (worker): nothing -> ",
        "its lock is held: somebody who left no note",
        "- the service is not installed",
        "memory: tight: 1 GB left",
        "+ <string>worker</string>",
        "1. take the lock",
        "write the audit log, release the lock",
        "head (head): nothing to do",
        "boris: cannot be deployed to: boris: gone",
    ):
        assert part in shown, part


def test_results_say_before_after_time_and_verdict() -> None:
    rows = [HostResult("allens", None, "b2", 3.25, "done"), HostResult("head", "a1", "a1", 0.0, "nothing to do")]
    shown = words(result_table(rows))
    assert "allens - b2 3.25 s done" in shown
    assert "head a1 a1 - nothing to do" in shown


def test_a_failure_shows_step_hint_log_and_what_was_not_put_back() -> None:
    error = DeployError("allens", "no", hint="look there")
    result = HostResult(
        "allens", "a", None, 1.0, "not restored", error, "start", (DeployError("allens", "stuck"),), "a\x1b[31m"
    )
    shown = words(*failure_view([result, HostResult("head", "a", "b", 1.0, "done")]))
    for part in (
        "in the step 'start': allens: no",
        "hint: look there",
        "could not be put back: allens: stuck",
        "a\\x1b[31m",
    ):
        assert part in shown, part
    assert "head" not in shown


def test_checks_and_history() -> None:
    assert "unknown head allens card no answer" in words(
        check_table([Check("head", "allens", "card", "unknown", "no answer")])
    )
    entry = {
        "time": 0,
        "who": "me@here",
        "action": "deploy",
        "before": None,
        "after": "b",
        "outcome": "done",
        "seconds": 2.0,
    }
    shown = words(*history_view("allens", [entry, {"action": "unreadable line", "outcome": "unknown"}]))
    assert "deploy - -> b done took 2.00 s; by me@here" in shown
    assert "unknown unreadable line - -> - unknown" in shown
    assert "nothing was done so far" in words(*history_view("allens", []))


def test_a_history_is_readable_in_80_columns() -> None:
    entry = {
        "time": 1.8e9,
        "who": "fluffy@head.local",
        "action": "undeploy",
        "outcome": "left as it is",
        "seconds": 67.9,
    }
    entry |= {"before": "2a9c46bbf2c2", "after": "308ae604bb37", "reason": "somebody " * 20, "gate": "tight"}
    out = io.StringIO()
    for renderable in history_view("allens", [entry]):
        Console(file=out, width=80).print(renderable)
    lines = out.getvalue().splitlines()
    assert lines[1].split()[2:] == ["undeploy", "2a9c46bbf2c2", "->", "308ae604bb37", "left", "as", "it", "is"]
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].startswith("      took ")
    assert "; by fluffy@head.local; because: somebody" in lines[2]
    assert " ".join(out.getvalue().split()).endswith("memory: tight")
