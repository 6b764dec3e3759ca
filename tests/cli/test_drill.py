from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kakeya_ops.cli.drill import ways_of
from kakeya_ops.cli.main import app
from kakeya_ops.drill.catalogue import CATALOGUE
from kakeya_ops.errors import ExitCode
from kakeya_ops.inventory import parse_inventory
from kakeya_ops.secret import write_fleet_key

TEXT = """
fleet: {{name: f, key_file: {key}, drill: {drill}}}
model: {{path: /m}}
prefill: {{require_remote: {required}}}
hosts:
  head: {{role: head, api: {{port: 1}}}}
  w:
    role: worker
    endpoints:
      - {{network: lan, address: 10.0.0.7, port: 2, priority: 1, trusted: true}}
      - {{network: cable, address: 169.254.0.7, port: 3, priority: 9, trusted: true}}
      - {{network: air, address: 10.0.1.7, port: 4, priority: 99}}
"""


def inventory(folder: Path, drill: str = "true", required: str = "false") -> Path:
    write_fleet_key(folder / "fleet.key")
    path = folder / "inventory.yaml"
    path.write_text(TEXT.format(key=folder / "fleet.key", drill=drill, required=required))
    return path


def run(path: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(path), *words])


def test_the_kinds_are_listed_without_a_fleet() -> None:
    result = CliRunner().invoke(app, ["--json", "drill", "--list"])
    assert result.exit_code == ExitCode.OK
    assert [kind["name"] for kind in json.loads(result.stdout)] == [kind.name for kind in CATALOGUE]
    only = CliRunner().invoke(app, ["--json", "drill", "--list", "--only", "evicted"])
    assert [kind["name"] for kind in json.loads(only.stdout)] == ["evicted"]


@pytest.mark.parametrize(
    ("drill", "required", "words", "code", "said"),
    [
        ("false", "false", (), ExitCode.NO, "fleet.drill: true"),
        ("true", "true", (), ExitCode.NO, "require_remote"),
        ("true", "false", ("--only", "earthquake"), ExitCode.INPUT, "no kind of fault 'earthquake'"),
        ("true", "false", (), ExitCode.FAILED, "cannot be reached"),
    ],
)
def test_what_stands_in_the_way_is_said(
    tmp_path: Path, drill: str, required: str, words: tuple[str, ...], code: ExitCode, said: str
) -> None:
    result = run(inventory(tmp_path, drill, required), "drill", *words)
    assert result.exit_code == code
    assert said in result.stderr


def test_nodes_are_spoken_to_where_they_listen_by_preference(tmp_path: Path) -> None:
    found = ways_of(parse_inventory(inventory(tmp_path).read_bytes(), "f.yaml"))
    assert [(one.network, one.port) for one in found["w"]] == [("air", 4), ("cable", 3), ("lan", 2)]
    assert [one.tls for one in found["w"]] == [True, False, False]
    assert found["head"] == ()
