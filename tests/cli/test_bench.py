from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bench.taken import sample_of
from kakeya_ops.bench import run as module
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.report import BenchReport, summarize_local
from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from kakeya_ops.secret import write_fleet_key

TEXT = """
fleet: {{name: f, tenant: t, key_file: {key}}}
model: {{path: /m}}
hosts:
  h:
    role: head
    api: {{bind: 127.0.0.1, port: 1}}
    endpoints: [{{network: lan, address: 127.0.0.1, port: 9, trusted: true}}]
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    write_fleet_key(tmp_path / "fleet.key")
    path = tmp_path / "inventory.yaml"
    path.write_text(TEXT.format(key=tmp_path / "fleet.key"))
    return path


def run(inventory: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(inventory), "bench", *words])


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[BenchPlan]:
    """The plans that were carried out, each with a local sample; none where there is no time."""
    seen: list[BenchPlan] = []

    def act(plan: BenchPlan, tell: Any) -> BenchReport:
        seen.append(plan)
        samples = [sample_of("local")] if plan.limit_seconds > 1 else []
        return BenchReport(plan.url, "h", plan.rounds, plan.lengths, 1.0, summarize_local(samples), ())

    monkeypatch.setattr(module, "run_bench", act)
    return seen


def test_options_make_the_plan(inventory: Path, plans: list[BenchPlan], tmp_path: Path) -> None:
    (tmp_path / "api.key").write_text("word\n")
    options = "--lengths 64,32 --rounds 2 --seconds 9 --worker w --expect hit<=0.5 --link-rate 100 --url http://h:2"
    result = run(inventory, *options.split(), "--api-key-file", str(tmp_path / "api.key"))
    assert result.exit_code == ExitCode.OK, result.output
    [plan] = plans
    assert (plan.url, plan.lengths, plan.rounds, plan.limit_seconds) == ("http://h:2", (32, 64), 2, 9.0)
    assert (plan.worker, plan.link_bytes_per_second) == ("w", 100e6)
    assert [kind.limit for kind in plan.expected] == [0.5]
    assert plan.api_key is not None
    assert "1001 tokens" in result.stdout


def test_a_comparison_takes_the_fleets_model(inventory: Path, plans: list[BenchPlan]) -> None:
    run(inventory)
    run(inventory, "--compare", "mlx-lm")
    assert [plan.compared_model for plan in plans] == [None, Path("/m")]
    assert run(inventory, "--compare", "another").exit_code == ExitCode.INPUT


def test_json_is_one_document(inventory: Path, plans: list[BenchPlan]) -> None:
    document = json.loads(run(inventory, "--json").stdout)
    assert (document["passed"], document["head"]) == (True, "h")


def test_nothing_measured_is_a_no(inventory: Path, plans: list[BenchPlan]) -> None:
    assert run(inventory, "--seconds", "1").exit_code == ExitCode.NO


@pytest.mark.parametrize("words", [["--lengths", "x"], ["--expect", "speed"], ["--rounds", "0"]])
def test_wrong_input_exits_with_2(inventory: Path, words: list[str]) -> None:
    assert run(inventory, *words).exit_code == ExitCode.INPUT


def test_no_head_exits_with_3(inventory: Path) -> None:
    result = run(inventory)
    assert result.exit_code == ExitCode.FAILED
    assert "the head cannot be reached" in result.stderr
