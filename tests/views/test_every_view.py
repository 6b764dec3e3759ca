"""All that the command line shows, on a narrow terminal, with NO_COLOR, and for whoever reads it from a pipe."""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.testing import CliRunner

from deploy.states import bare, planner, settled
from founding.macs import CHOICES, newcomer
from kakeya_ops import views
from kakeya_ops.cli.main import app
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.cross_check import Check as NodeCheck
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.doctor.finding import Finding, Report
from kakeya_ops.drill.catalogue import CATALOGUE
from kakeya_ops.errors import ConnectFailed
from kakeya_ops.founding.discovery import Announced
from kakeya_ops.founding.lines import Line
from kakeya_ops.founding.proposal import propose
from kakeya_ops.inventory import load_inventory
from kakeya_ops.memory.assessment import Surroundings, assess
from kakeya_ops.memory.facts import pinned
from kakeya_ops.runbook import list_pages
from kakeya_ops.verify.quarantine import Listing
from kakeya_ops.views.bench import bench_view, targets_table
from kakeya_ops.views.demo import DemoScreen
from kakeya_ops.views.deploy_tables import check_table, failure_view, history_view, plan_view, result_table
from kakeya_ops.views.doctor import report_view
from kakeya_ops.views.drill import catalogue_table, drill_table, drill_verdict
from kakeya_ops.views.explain import explanation, numbers_table, seals_table, timeline_table
from kakeya_ops.views.founding import announced_table, next_steps, proposal_view
from kakeya_ops.views.log_lines import log_line
from kakeya_ops.views.memory_tables import assessment_view, failure_line, headline, matrix_table
from kakeya_ops.views.printer import Printer
from kakeya_ops.views.quarantine import held_table, quarantine_view, released_line
from kakeya_ops.views.runbook import pages_table
from kakeya_ops.views.status import status_view
from kakeya_ops.views.tables import checks_table, fleet_table, receipt_timeline, verdict_line
from memory.public_models import QWEN3_30B, sized
from serving.test_receipts import RECEIPT
from serving.test_timeline import BROKEN
from status.samples import judged, silent, whole
from test_layout import ROOT
from verify.samples import head_card, receipt, worker_card
from views.test_bench import report as bench_report
from views.test_demo import OUTCOME
from views.test_drill import SAFE, SKIPPED, WRONG
from views.test_drill import report as drill_report
from views.test_explain import explained
from views.test_quarantine import FREED, HELD
from views.test_tables import report as verify_report

NARROW, WIDE = 40, 200
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
LONG = "a sentence of somebody else that is rather longer than the whole line of a narrow terminal is"
Parts = Iterable[RenderableType]


class Terminal(io.StringIO):
    """A terminal that keeps what it is given."""

    def isatty(self) -> bool:
        return True


def deployed() -> Parts:
    made = planner()
    states = {"allens": bare("allens"), "head": settled(made, "head"), "boris": DeployError("boris", LONG)}
    error = DeployError("allens", LONG, hint=LONG)
    failed = HostResult("allens", "a1b2c3d4e5f6", None, 61.5, "not restored", error, "start", (error,), f"{LONG}\n" * 2)
    yield from plan_view(made.plan(states))
    yield result_table([failed, HostResult("head", None, "a1b2c3d4e5f6", 1.0, "done")])
    yield from failure_view([failed])
    yield check_table([NodeCheck("head", "allens", "the process of head reaches allens", "failed", LONG)])
    entry = {"time": 1.8e9, "who": "fluffy@head.local", "action": "undeploy", "outcome": "left as it is"}
    entry |= {"seconds": 67.9, "before": "2a9c46bbf2c2", "after": "308ae604bb37", "reason": LONG, "gate": "tight"}
    yield from history_view("allens", [entry])


def remembered() -> Parts:
    inventory = load_inventory(ROOT / "inventory.yaml")
    model = sized(Path(MODEL[0]), QWEN3_30B, 17.18e9)
    found = assess(inventory, inventory.host("head"), model, Surroundings(pinned(24)))
    yield from assessment_view(found)
    yield headline(found)
    yield matrix_table({"mini": {"head": "does not fit", "worker": "tight", "cache": "fits"}}, {"mini": "worker"})
    yield failure_line("allens", ConnectFailed("allens", LONG))


def founded() -> Parts:
    proposal = propose([newcomer("head"), newcomer("allens")], CHOICES, None)
    lines = {"allens": [Line("169.254.10.2", 0.0005, 2.0**30), Line("192.0.2.10", None, None)]}
    yield proposal_view(replace(proposal, lines=lines))
    yield next_steps(Path("inventory.yaml"), "~/.kakeya/fleet.key", made=True)
    yield announced_table([Announced("allens", "allens.local", ("192.0.2.9", "169.254.10.2"), "worker")])


def examined() -> Parts:
    findings = [Finding("disk", "allens", "failed", LONG, LONG), Finding("clock", "allens", "ok", LONG)]
    return report_view(Report.of(findings, ["allens"]))


def drilled() -> Parts:
    found = drill_report(SAFE, replace(WRONG, detail=LONG), SKIPPED)
    return drill_table(found), drill_verdict(found), catalogue_table(CATALOGUE)


def proved() -> Parts:
    found = verify_report("ok", "failed", "unknown")
    yield checks_table(found)
    yield verdict_line(found)
    yield fleet_table(head_card(), [worker_card()])
    yield receipt_timeline(receipt("cold"))


def told() -> Parts:
    for one in (RECEIPT, BROKEN):
        found = explained(one)
        yield from explanation(found)
        yield from (timeline_table(found), numbers_table(found), seals_table(found))


def measured() -> Parts:
    yield from bench_view(bench_report())
    yield targets_table(bench_report())


def held() -> Parts:
    yield from quarantine_view(Listing("head", (HELD,), (FREED,)))
    yield held_table((HELD, FREED))
    yield released_line(FREED, "http://head")


MODEL: list[Path] = []
VIEWS: dict[str, Callable[[], Parts]] = {
    "bench": measured,
    "deploy": deployed,
    "doctor": examined,
    "drill": drilled,
    "explain": told,
    "init": founded,
    "logs": lambda: [log_line('{"timestamp": "2026-01-31T09:30:00Z", "level": "info", "event": "x", "a": 1}')],
    "memory": remembered,
    "quarantine": held,
    "runbook": lambda: [pages_table(list_pages())],
    "status": lambda: [status_view(judged(whole(allens=silent(LONG))), NARROW)],
    "verify": proved,
}


@pytest.fixture(autouse=True)
def _model(tmp_path_factory: pytest.TempPathFactory) -> None:
    MODEL[:] = [tmp_path_factory.mktemp("qwen")]


def shown(parts: Parts, file: io.StringIO, monkeypatch: pytest.MonkeyPatch, **surroundings: str) -> str:
    """What a command that shows `parts` writes."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm-256color", "COLUMNS": str(NARROW)} | surroundings).items():
        monkeypatch.setenv(name, value)
    Printer(stdout=file).show(None, *parts)
    return file.getvalue()


def tables_of(parts: Parts) -> list[RenderableType]:
    """All but sentences, which a terminal wraps itself so that they can be copied."""
    return [part for part in parts if not isinstance(part, Text)]


@pytest.mark.parametrize("name", VIEWS)
def test_no_line_is_longer_than_a_narrow_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ESCAPE.sub("", shown(tables_of(VIEWS[name]()), Terminal(), monkeypatch))
    assert [line for line in text.splitlines() if Segment.get_line_length([Segment(line)]) > NARROW] == []


@pytest.mark.parametrize("name", VIEWS)
def test_a_narrow_terminal_gets_every_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (
        "".join(shown(VIEWS[name](), io.StringIO(), monkeypatch, COLUMNS=str(width))) for width in (NARROW, WIDE)
    )
    assert narrow.count("…") == wide.count("…")
    assert sorted(set(re.findall(r"[0-9]", wide)) - set(re.findall(r"[0-9]", narrow))) == []


@pytest.mark.parametrize("name", VIEWS)
def test_a_pipe_gets_no_escapes_and_no_color_no_colours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in shown(VIEWS[name](), io.StringIO(), monkeypatch)
    assert not COLOUR.search(shown(VIEWS[name](), Terminal(), monkeypatch, NO_COLOR="1"))


def test_colours_are_found_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOUR.search(shown(VIEWS["verify"](), Terminal(), monkeypatch))


def test_the_outcome_of_a_demo_is_told_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(NARROW))
    monkeypatch.setenv("NO_COLOR", "1")
    for file in (io.StringIO(), Terminal()):
        DemoScreen(Printer(stdout=file, stderr=io.StringIO()), "kakeya").outcome(OUTCOME)
        assert not COLOUR.search(file.getvalue())


@pytest.mark.parametrize("words", ["inventory show", "inventory show allens", "inventory check"])
def test_the_inventory_is_shown_likewise(words: str) -> None:
    arguments = ["--inventory", str(ROOT / "inventory.yaml"), *words.split()]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(NARROW)})
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    if words != "inventory check":
        assert max(map(len, result.stdout.splitlines())) <= NARROW


def renderers() -> Iterator[str]:
    """Every public function of the views that makes something to be shown."""
    for found in pkgutil.iter_modules(views.__path__):
        module = importlib.import_module(f"kakeya_ops.views.{found.name}")
        for name in module.__all__:
            function = getattr(module, name)
            if inspect.isfunction(function) and shows(typing.get_type_hints(function).get("return")):
                yield name


def shows(kind: object) -> bool:
    """Whether a value of `kind` is something to be shown."""
    return any(word in str(kind) for word in ("rich.", "ConsoleRenderable")) and "DeployScreen" not in str(kind)


SHOWN_BY_COMMANDS = frozenset({"host_table", "hosts_table", "validity"})
"""Those of ``kakeya inventory``, which needs no sample."""


def test_every_view_is_among_them() -> None:
    source = Path(__file__).read_text()
    assert [name for name in renderers() if f"{name}(" not in source and name not in SHOWN_BY_COMMANDS] == []
