from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kakeya_ops.cli.main import app
from kakeya_ops.cli.verify import fleet_keys, head_url, read_api_key
from kakeya_ops.errors import ExitCode, InputError
from kakeya_ops.inventory import Inventory, parse_inventory
from verify.samples import KEY, worker_card
from verify.scripted_head import ScriptedHead, serve

TEXT = """
fleet: {{name: f, tenant: t, key_file: {key}}}
model: {{path: /m}}
hosts:
  h:
    role: head
    api: {{bind: "{bind}", port: {port}, keys_file: /keys}}
    endpoints: [{{network: lan, address: {address}, port: 9, trusted: true}}]
"""


def inventory(bind: str = "127.0.0.1", port: int = 8080, key: str = "/key", address: str = "10.0.0.7") -> str:
    return TEXT.format(bind=bind, port=port, key=key, address=address)


def parsed(text: str) -> Inventory:
    return parse_inventory(text.encode(), "f.yaml")


@pytest.fixture
def head() -> ScriptedHead:
    return ScriptedHead()


@pytest.fixture
def fleet(head: ScriptedHead, tmp_path: Path) -> Iterator[Path]:
    """The inventory of a fleet whose head is scripted."""
    key = tmp_path / "fleet.key"
    key.write_text(KEY.reveal().hex())
    key.chmod(0o600)
    path = tmp_path / "inventory.yaml"
    with serve(head, time.time) as url:
        path.write_text(inventory(port=int(url.rpartition(":")[2]), key=str(key)))
        yield path


def probe(fleet: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(fleet), "verify", "remote-prefill", *words])


def test_a_yes_exits_with_0_and_names_the_worker(fleet: Path) -> None:
    result = probe(fleet)
    assert result.exit_code == ExitCode.OK, result.output
    assert "PASSED: worker computed the prefix" in result.stdout
    assert result.stderr == ""


def test_json_is_one_document(fleet: Path) -> None:
    result = probe(fleet, "--json")
    document = json.loads(result.stdout)
    assert document["passed"] is True
    assert document["worker"] == "worker"


def test_a_no_exits_with_1_and_its_reason(head: ScriptedHead, fleet: Path) -> None:
    head.nodes = [worker_card() | {"reachable": False}]
    result = probe(fleet)
    assert result.exit_code == ExitCode.NO
    assert "worker cannot be reached from the head" in " ".join(result.stdout.split())
    assert json.loads(probe(fleet, "--json").stdout)["passed"] is False


def test_no_head_exits_with_3(fleet: Path) -> None:
    result = probe(fleet, "--url", "http://127.0.0.1:1")
    assert result.exit_code == ExitCode.FAILED
    assert result.stdout == ""
    assert result.stderr.startswith("error: http://127.0.0.1:1: the head cannot be reached")


def test_the_length_of_the_prompt_is_the_users(head: ScriptedHead, fleet: Path) -> None:
    probe(fleet, "--min-tokens", "300")
    assert len(head.prompts[-1]["prompt"].split()) >= 300


def test_another_worker_is_no_proof(fleet: Path) -> None:
    assert probe(fleet, "--worker", "other").exit_code == ExitCode.NO


@pytest.mark.parametrize(
    ("bind", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8080"),
        ("::1", "http://[::1]:8080"),
        ("head.local", "http://head.local:8080"),
        ("0.0.0.0", "http://10.0.0.7:8080"),
        ("::", "http://10.0.0.7:8080"),
    ],
)
def test_the_head_is_asked_where_it_can_be_reached(bind: str, url: str) -> None:
    assert head_url(parsed(inventory(bind))) == url


def test_an_unsigned_fleet_cannot_be_proved() -> None:
    with pytest.raises(InputError, match="unsigned"):
        fleet_keys(parsed(inventory(key="null", address="127.0.0.1")))


def test_an_api_key_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret-key\n")
    assert read_api_key(path).reveal() == b"secret-key"


@pytest.mark.parametrize("content", ["", "two words", "a\nb", "schlüssel"])
def test_what_is_no_api_key_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    with pytest.raises(InputError, match="API key file"):
        read_api_key(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_api_key(tmp_path / "absent")
