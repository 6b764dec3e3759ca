"""``kakeya key`` hands over to what does the work."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import yaml
from typer.testing import CliRunner, Result

from kakeya_ops.certificates import read_certificates
from kakeya_ops.certificates.places import authority_path
from kakeya_ops.cli.main import app
from kakeya_ops.secret import read_fleet_key


def test_rotation_is_explained() -> None:
    result = CliRunner().invoke(app, ["key", "rotate", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "both keys are accepted" in result.stdout


def test_without_an_inventory_nothing_is_rotated(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--inventory", str(tmp_path / "absent.yaml"), "key", "rotate", "--yes"])
    assert result.exit_code == 2
    assert "absent.yaml" in result.stderr


def new_key(folder: Path, key_file: str | None, *words: str) -> Result:
    document = {
        "fleet": {"name": "f", "key_file": key_file},
        "model": {"path": "/m"},
        "hosts": {"head": {"role": "head", "api": {}}},
    }
    inventory = folder / "inventory.yaml"
    inventory.write_text(yaml.safe_dump(document))
    return CliRunner().invoke(app, ["--inventory", str(inventory), *words, "key", "new"])


def test_a_new_key_is_where_the_inventory_says_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "fleet.key"
    result = new_key(tmp_path, str(path))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"made {path};")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_fleet_key(path).reveal().hex() not in result.output
    assert sorted(path.parent.iterdir()) == [path, authority_path(path)]


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "fleet.key"
    assert json.loads(new_key(tmp_path, str(path), "--json").stdout) == {
        "key_file": str(path),
        "authority": str(authority_path(path)),
    }
    first = path.read_bytes()
    result = new_key(tmp_path, str(path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert f"fleet key {path} exists" in result.stderr
    assert path.read_bytes() == first


def test_an_unsigned_fleet_has_no_place_for_a_key(tmp_path: Path) -> None:
    result = new_key(tmp_path, None)
    assert result.exit_code == 2
    assert "hint: set fleet.key_file" in result.stderr


def fleet_by_hand(folder: Path, *, trusted: bool) -> Path:
    """An inventory with a worker on a network, and its key with the authority."""
    folder.mkdir(exist_ok=True)
    key = folder / "keys" / "fleet.key"
    endpoint = {"network": "lan", "address": "10.0.0.7", "port": 8765, "trusted": trusted}
    document = {
        "fleet": {"name": "f", "key_file": str(key)},
        "model": {"path": "/m"},
        "hosts": {"head": {"role": "head", "api": {}}, "allens": {"role": "worker", "endpoints": [endpoint]}},
    }
    inventory = folder / "inventory.yaml"
    inventory.write_text(yaml.safe_dump(document))
    assert CliRunner().invoke(app, ["--inventory", str(inventory), "key", "new"]).exit_code == 0
    return inventory


def certify(inventory: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(inventory), "key", "certificate", *words])


def test_a_certificate_for_a_node_that_is_served_by_hand(tmp_path: Path) -> None:
    inventory, folder = fleet_by_hand(tmp_path, trusted=False), tmp_path / "keys/allens"
    result = certify(inventory, "allens")
    assert result.exit_code == 0, result.output
    assert str(folder / "fleet.key.cert.pem") in result.stdout
    assert "beside the fleet key of allens" in result.stdout
    assert read_certificates(folder / "fleet.key") is not None
    again = certify(inventory, "allens")
    assert (again.exit_code, again.stdout) == (3, "")
    assert certify(inventory, "allens", "--replace").exit_code == 0
    assert certify(inventory, "head", "--into", str(tmp_path / "keys")).exit_code == 0
    assert read_certificates(tmp_path / "keys/fleet.key") is not None


def test_no_certificate_where_there_is_no_such_node_or_no_need(tmp_path: Path) -> None:
    assert certify(fleet_by_hand(tmp_path, trusted=False), "alens").exit_code == 2
    result = certify(fleet_by_hand(tmp_path / "trusting", trusted=True), "allens")
    assert result.exit_code == 2
    assert "no endpoint of this fleet speaks TLS" in result.stderr
