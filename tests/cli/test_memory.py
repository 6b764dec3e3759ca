"""The options of ``kakeya memory``."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kakeya_ops.cli import assessing
from kakeya_ops.cli.assessing import MemoryOptions
from kakeya_ops.cli.main import app
from kakeya_ops.memory.demand import NO_OVERRIDES, Overrides


def test_a_role_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(app, ["memory", "--role", "king"])
    assert result.exit_code == 2
    assert "head, worker, cache" in result.output


def test_options_become_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[MemoryOptions] = []
    monkeypatch.setattr(assessing, "run_memory", lambda context, options: asked.append(options))
    words = ["allens", "head", "--model", "/m", "--context", "4096", "--concurrency", "2", "--role", "worker"]
    assert CliRunner().invoke(app, ["memory", *words]).exit_code == 0
    assert CliRunner().invoke(app, ["memory"]).exit_code == 0
    first, second = asked
    assert (first.hosts, str(first.model), first.overrides) == (("allens", "head"), "/m", Overrides("worker", 4096, 2))
    assert (first.matrix, second.matrix, second.overrides) == (False, True, NO_OVERRIDES)
