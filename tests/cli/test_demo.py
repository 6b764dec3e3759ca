from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from kakeya_ops.cli.main import app
from kakeya_ops.demo import run
from kakeya_ops.errors import EnvironmentFault, ExitCode
from kakeya_ops.verify.report import Check, Verdict, VerifyReport


def call(monkeypatch: pytest.MonkeyPatch, outcome: Any, *words: str) -> tuple[int, str, list[Any]]:
    """Exit code, messages, and the options that the demo itself was given; it is tested as a whole elsewhere."""
    given: list[Any] = []

    def run_demo(options: Any, view: Any) -> VerifyReport:
        given.append(options)
        if isinstance(outcome, Exception):
            raise outcome
        return VerifyReport("", "", "worker", (Check("c", outcome, ""),))

    monkeypatch.setattr(run, "run_demo", run_demo)
    result = CliRunner().invoke(app, ["demo", *words])
    return result.exit_code, result.stderr, given


@pytest.mark.parametrize(("verdict", "code"), [("ok", ExitCode.OK), ("failed", ExitCode.NO), ("unknown", ExitCode.NO)])
def test_the_probes_verdict_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int) -> None:
    assert call(monkeypatch, verdict)[0] == code


def test_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    ((options),) = call(monkeypatch, "ok", "--keep", "--model", "smollm2", "--port", "4711")[2]
    assert options == run.DemoOptions("smollm2", 4711, True)


def test_what_the_machine_refuses_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    code, messages, _ = call(monkeypatch, EnvironmentFault("port 1 cannot be used", hint="another"))
    assert (code, messages) == (ExitCode.FAILED, "error: port 1 cannot be used\nhint: another\n")


@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_port_that_is_none_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    assert call(monkeypatch, "ok", "--port", port)[0] == ExitCode.INPUT
