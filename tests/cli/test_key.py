"""``kakeya key`` hands over to what does the work."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from kakeya_ops.cli.main import app


def test_rotation_is_explained() -> None:
    result = CliRunner().invoke(app, ["key", "rotate", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "both keys are accepted" in result.stdout


def test_without_an_inventory_nothing_is_rotated(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--inventory", str(tmp_path / "absent.yaml"), "key", "rotate", "--yes"])
    assert result.exit_code == 2
    assert "absent.yaml" in result.stderr
