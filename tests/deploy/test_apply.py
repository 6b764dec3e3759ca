"""The order of hosts and steps, and the way back, with real locks and audit logs on this machine."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.states import bare, inventory
from kakeya_ops.deploy.apply import Application, ApplySettings, HostResult
from kakeya_ops.deploy.audit import read_history
from kakeya_ops.deploy.context import HostContext, unseen_transfer
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.gate import Verdict
from kakeya_ops.deploy.plan import HostPlan, Plan, make_plan
from kakeya_ops.errors import ExitCode, RefusedError
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner


@dataclass
class Story:
    """What happened, in order; a `kakeya_ops.deploy.apply.Progress`."""

    events: list[str] = field(default_factory=list)

    @contextmanager
    def step(self, host: str, title: str) -> Iterator[None]:
        self.events.append(f"{host} {title}")
        yield

    def note(self, host: str, text: str) -> None:
        self.events.append(f"{host} note {text}")

    def transfer(self, host: str, what: str, total_bytes: int) -> Any:
        return unseen_transfer(what, total_bytes)

    def done(self) -> list[str]:
        return [event for event in self.events if " note " not in event]


@dataclass(frozen=True)
class Act:
    """A step that can fail, and be taken back."""

    title: str
    story: Story
    fails: bool = False
    meanwhile: Callable[[], object] = lambda: None
    undo_fails: bool = False

    def apply(self, context: HostContext) -> None:
        def undo() -> None:
            self.story.events.append(f"{context.host.name} undo {self.title}")
            if self.undo_fails:
                raise DeployError(context.host.name, "cannot go back")

        context.undo(self.title, undo)
        self.meanwhile()
        if self.fails:
            raise DeployError(context.host.name, f"{self.title} failed")


class Bench:
    """Plans and applies on hosts that are folders of this machine."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.story = Story()

    def places(self, name: str) -> Places:
        home = self.home / name
        home.mkdir(exist_ok=True)
        return Places.of(inventory(), inventory().host(name), str(home))

    def host(self, name: str, *steps: Act) -> HostPlan:
        state = bare(name, home=str(self.home / name), domains=())
        return HostPlan(inventory().host(name), state, self.places(name), "g1", steps)

    def act(self, title: str, **values: Any) -> Act:
        return Act(title, self.story, **values)

    def run(self, plan: Plan, **settings: Any) -> dict[str, HostResult]:
        self.application = Application(LocalRunner, self.story, ApplySettings(**settings))
        return {result.host: result for result in self.application.run(plan)}


@pytest.fixture
def bench(home: Path) -> Bench:
    return Bench(home)


def test_steps_are_done_in_order_and_noted_on_the_host(bench: Bench) -> None:
    results = bench.run(make_plan([bench.host("allens", bench.act("one"), bench.act("two"))], {}), reason="why")
    assert bench.story.done() == ["allens one", "allens two"]
    assert (results["allens"].verdict, results["allens"].after) == ("done", "g1")
    (entry,) = read_history(LocalRunner("allens"), bench.places("allens"))
    assert (entry["outcome"], entry["steps"], entry["reason"]) == ("done", ["one", "two"], "why")
    assert not Path(bench.places("allens").lock).exists()


@pytest.mark.parametrize("fails", [False, True])
def test_a_gate_that_was_overruled_is_noted_with_the_reason_also_when_a_step_fails(bench: Bench, fails: bool) -> None:
    gate = Verdict("does not fit", "15.6 GB of weights")
    plan = dataclasses.replace(bench.host("allens", bench.act("one", fails=fails)), gate=gate)
    bench.run(make_plan([plan], {}), reason="it is my Mac")
    (entry,) = read_history(LocalRunner("allens"), bench.places("allens"))
    assert entry["gate"] == "does not fit: 15.6 GB of weights (forced: it is my Mac)"
    assert (entry["reason"] == "it is my Mac") is not fails


def test_a_failure_takes_everything_back_the_last_first(bench: Bench) -> None:
    steps = (bench.act("one"), bench.act("two", fails=True), bench.act("three"))
    result = bench.run(make_plan([bench.host("allens", *steps)], {}))["allens"]
    assert bench.story.done() == ["allens one", "allens two", "allens undo two", "allens undo one"]
    assert (result.verdict, result.failed_step, result.good) == ("restored", "two", False)
    assert read_history(LocalRunner("allens"), bench.places("allens"))[0]["outcome"] == "restored"


def test_what_cannot_be_taken_back_is_told_and_the_rest_is(bench: Bench) -> None:
    steps = (bench.act("one"), bench.act("two", undo_fails=True), bench.act("three", fails=True))
    result = bench.run(make_plan([bench.host("allens", *steps)], {}))["allens"]
    assert result.verdict == "not restored"
    assert [failure.message for failure in result.failures] == ["allens: cannot go back"]
    assert "allens undo one" in bench.story.events


def test_no_rollback_leaves_the_host_to_be_looked_at(bench: Bench) -> None:
    plan = make_plan([bench.host("allens", bench.act("one"), bench.act("two", fails=True))], {})
    assert bench.run(plan, rollback=False)["allens"].verdict == "left as it is"
    assert not [event for event in bench.story.events if "undo" in event]


def test_the_first_host_goes_alone_and_stops_the_others_when_it_fails(bench: Bench) -> None:
    hosts = [bench.host("allens", bench.act("one", fails=True))]
    hosts += [bench.host(name, bench.act("one")) for name in ("boris", "vault", "head")]
    results = bench.run(make_plan(hosts, {}))
    assert {name: result.verdict for name, result in results.items()} == {
        "allens": "restored",
        "boris": "not begun",
        "vault": "not begun",
        "head": "not begun",
    }
    assert "allens failed, and it went first" in str(results["head"].error)
    assert bench.story.done() == ["allens one", "allens undo one"]


def test_after_the_first_the_others_go_together_and_heads_last(bench: Bench) -> None:
    together = threading.Barrier(2)
    meet = {"meanwhile": lambda: together.wait(10)}
    hosts = [bench.host("head", bench.act("one")), bench.host("allens", bench.act("one"))]
    hosts += [bench.host(name, bench.act("one", **meet)) for name in ("boris", "vault")]
    results = bench.run(make_plan(hosts, {}), parallel=2)
    assert all(result.good for result in results.values())
    assert bench.story.done()[0] == "allens one"
    assert bench.story.done()[-1] == "head one"


def test_a_later_failure_stops_nobody(bench: Bench) -> None:
    hosts = [bench.host(name, bench.act("one", fails=name == "boris")) for name in ("allens", "boris", "head")]
    results = bench.run(make_plan(hosts, {}))
    assert [results[name].good for name in ("allens", "boris", "head")] == [True, False, True]


def test_giving_up_takes_back_what_was_begun_and_begins_nothing_more(bench: Bench) -> None:
    hosts = [
        bench.host("allens", bench.act("one", meanwhile=lambda: bench.application.cancelled.set()), bench.act("two")),
        bench.host("head", bench.act("one")),
    ]
    results = bench.run(make_plan(hosts, {}))
    assert bench.story.done() == ["allens one", "allens undo one"]
    assert results["allens"].error is not None
    assert results["allens"].error.exit_code is ExitCode.INTERRUPTED
    assert results["head"].verdict == "not begun"


def test_a_host_that_changed_since_it_was_looked_at_is_left_alone(bench: Bench) -> None:
    plan = make_plan([bench.host("allens", bench.act("one"))], {})
    agents = Path(bench.places("allens").agents)
    agents.mkdir(parents=True)
    Path(bench.places("allens").plist).write_text("somebody was here")
    result = bench.run(plan)["allens"]
    assert (result.verdict, bench.story.done()) == ("not begun", [])
    assert "since the plan was made" in str(result.error)


def test_a_bug_in_a_step_takes_back_what_was_done_and_is_not_hidden(bench: Bench) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    plan = make_plan([bench.host("allens", bench.act("one", meanwhile=bug))], {})
    with pytest.raises(ZeroDivisionError):
        bench.run(plan)
    assert bench.story.done() == ["allens one", "allens undo one"]
    assert not Path(bench.places("allens").lock).exists()


def test_hosts_that_cannot_be_planned_or_need_nothing_have_a_result_too(bench: Bench) -> None:
    refusal = RefusedError("does not fit")
    results = bench.run(make_plan([bench.host("head")], {"allens": refusal}))
    assert (results["head"].verdict, results["allens"].verdict) == ("nothing to do", "not begun")
    assert results["allens"].error is refusal
