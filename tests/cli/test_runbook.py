"""``kakeya runbook``: the list, a page, and names that are no page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kakeya_ops.cli.main import app

TWO_MACS = str(Path(__file__).parents[2] / "runbooks/two-macs.yaml")


def test_pages_are_listed_without_an_inventory(tmp_path: Path) -> None:
    for words in ([], ["--list"]):
        result = CliRunner().invoke(app, ["runbook", *words], env={"HOME": str(tmp_path)})
        assert result.exit_code == 0, result.output
        assert "kakeya runbook worker-down" in result.output


def test_a_page_is_printed_as_it_is_for_this_fleet() -> None:
    result = CliRunner().invoke(app, ["--inventory", TWO_MACS, "runbook", "worker-down"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert f"$ kakeya --inventory {TWO_MACS} restart allens" in result.output
    document = json.loads(CliRunner().invoke(app, ["--json", "--inventory", TWO_MACS, "runbook", "worker-down"]).stdout)
    assert document["text"].startswith("# A worker or a cache peer is down")


def test_who_has_no_inventory_yet_gets_the_first_page_with_an_example_s_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["runbook", "first-fleet"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "--host allens=allens.local" in result.stdout
    assert "those of an example" in result.stderr
    for words in (["runbook", "worker-down"], ["--inventory", "none.yaml", "runbook", "first-fleet"]):
        assert CliRunner().invoke(app, words).exit_code == 2


def test_what_is_no_page_is_refused() -> None:
    result = CliRunner().invoke(app, ["--inventory", TWO_MACS, "runbook", "worker-don"])
    assert (result.exit_code, "worker-down" in result.output) == (2, True)
