"""``kakeya memory`` on the founding inventory and around it: hosts that answer, hosts that do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.states import bare
from deploy.states import card as make_card
from kakeya_ops.cli import assessing
from kakeya_ops.cli.main import app
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.errors import ConnectFailed
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.remote import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.wire.cards import NodeMemory
from mac.host import MacHost
from memory.checkpoints import write_checkpoint
from memory.machines import mac
from memory.public_models import write_founding_model
from test_layout import ROOT

FOUNDING_MODEL = "~/kakeya-models/gemma-4-26B-A4B-it-mlx-4bit"
Kakeya = Callable[..., Result]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_founding_model(tmp_path_factory.mktemp("gemma") / "model")


@pytest.fixture
def inventory(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    path = tmp_path / "inventory.yaml"
    path.write_text((ROOT / "inventory.yaml").read_text().replace(FOUNDING_MODEL, str(model)))
    return path


@pytest.fixture
def kakeya(inventory: Path) -> Kakeya:
    return lambda *words: CliRunner().invoke(app, ["--inventory", str(inventory), *words], env={"COLUMNS": "200"})


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: ResolvedHost) -> None:
        raise ConnectFailed(host.name, "no route to host")

    monkeypatch.setattr(connect, "connect", refuse)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MacHost]:
    """Every host is this simulated Mac with 16 GB."""
    with MacHost(tmp_path / "mac") as host:
        for name, value in host.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(connect, "connect", lambda resolved: LocalRunner(resolved.name))
        yield host


@pytest.mark.usefixtures("unreachable")
def test_the_founding_worker_does_not_fit_and_is_offered_what_would(kakeya: Kakeya) -> None:
    result = kakeya("memory", "allens")
    assert result.exit_code == 1, result.output
    for words in (
        "allens as a worker, 4 × 8192 tokens: does not fit: working set: 19.0 GiB of 10.7 GiB",
        "8.3 GiB too much",
        "weights            13.2 GiB",
        "PINNED: memory_gb of the inventory",
        "role: cache: it keeps 4.0 GiB of KV for the others, without a model -> fits",
        "the model in 2 bits: about 7.3 GiB of weights instead of 13.2 GiB, and pool_gb: 1.5 instead of 4 -> tight",
    ):
        assert words in result.stdout, result.stdout
    assert "no route to host; memory_gb of the inventory is taken instead" in result.stderr


@pytest.mark.usefixtures("unreachable")
def test_the_founding_head_does_not_fit_as_derived_by_hand(kakeya: Kakeya) -> None:
    # The terms are derived in tests/memory/test_assessment.py.
    document = json.loads(kakeya("--json", "memory", "head").stdout)["hosts"]["head"]["head"]
    assert (document["answer"], document["first_failure"]) == ("does not fit", "working set")
    assert {term["name"] for term in document["need"]["terms"]} == {
        "weights",
        "KV",
        "prefill step",
        "export",
        "MLX",
        "process",
        "pool",
        "spare buffers",
    }
    assert [change["kind"] for change in document["changes"]] == ["pool", "wired limit", "cache peer", "quantization"]


@pytest.mark.usefixtures("unreachable")
def test_without_a_host_all_are_compared_in_every_role(kakeya: Kakeya) -> None:
    result = kakeya("memory")
    assert result.exit_code == 1
    assert "does not fit *" in result.stdout
    document = json.loads(kakeya("--json", "memory").stdout)
    answers = {host: {role: one["answer"] for role, one in roles.items()} for host, roles in document["hosts"].items()}
    no = {"head": "does not fit", "worker": "does not fit", "cache": "fits"}
    assert answers == {"head": no, "allens": no}


@pytest.mark.usefixtures("unreachable")
def test_another_role_and_another_model_may_be_asked_about(kakeya: Kakeya, tmp_path: Path) -> None:
    assert kakeya("memory", "allens", "--role", "cache").exit_code == 0
    strange = write_checkpoint(tmp_path / "strange", {"model_type": "rwkv9"})
    result = kakeya("memory", "allens", "--model", str(strange))
    assert result.exit_code == 3
    assert "unknown: its model_type 'rwkv9'" in result.stdout
    assert "NaN" not in result.output
    assert kakeya("memory", "allens", "--model", str(tmp_path / "nowhere")).exit_code == 2


@pytest.mark.usefixtures("unreachable")
def test_a_host_without_a_word_in_the_inventory_cannot_be_judged_from_afar(kakeya: Kakeya, inventory: Path) -> None:
    inventory.write_text(inventory.read_text().replace("memory_gb: 16", "memory_gb: null"))
    result = kakeya("memory", "allens")
    assert result.exit_code == 3
    assert "allens: unknown: allens: cannot connect: no route to host" in result.stdout
    assert json.loads(kakeya("--json", "memory", "allens").stdout)["failures"].keys() == {"allens"}


@pytest.mark.usefixtures("unreachable")
def test_a_model_that_is_nowhere_is_said_to_be(kakeya: Kakeya, inventory: Path, model: Path) -> None:
    inventory.write_text(inventory.read_text().replace(str(model), "/nowhere/model"))
    result = kakeya("memory", "allens")
    assert result.exit_code == 2
    assert "--model DIR" in result.stderr
    # A cache peer loads none.
    assert kakeya("memory", "allens", "--role", "cache").exit_code == 0


def test_a_host_that_answers_is_read(kakeya: Kakeya, mini: MacHost) -> None:
    result = kakeya("memory", "allens")
    assert result.exit_code == 1
    assert "PINNED" not in result.stdout
    assert "recommendedMaxWorkingSetSize" in result.stdout
    # A limit that the owner has raised is in what Metal says.
    mini.set(wired_limit_mb=14336)
    assert "working set: 19.0 GiB of 14.0 GiB" in kakeya("memory", "allens").stdout


def test_a_model_that_is_only_on_a_host_is_read_there(
    kakeya: Kakeya, inventory: Path, model: Path, mini: MacHost
) -> None:
    place = mini.home / "models/gemma"
    place.mkdir(parents=True)
    for file in model.iterdir():
        (place / file.name).symlink_to(file)
    inventory.write_text(inventory.read_text().replace(str(model), str(place)))
    here = kakeya("--json", "memory", "allens").stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assessing, "expand_here", lambda path: Path("/not/on/this/machine"))
        there = kakeya("--json", "memory", "allens").stdout
    terms = [json.loads(said)["hosts"]["allens"]["worker"]["need"]["terms"] for said in (here, there)]
    assert terms[0] == terms[1]


def test_a_running_node_is_compared_with_its_forecast(kakeya: Kakeya, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = NodeMemory(active_bytes=15 << 30, peak_bytes=20 << 30, footprint_bytes=21 << 30)

    def observe(hosts: Hosts, names: Any) -> Any:
        card = make_card("allens", memory=memory)
        return {name: bare(name, memory=mac(64), card=card) for name in names}

    monkeypatch.setattr(Hosts, "observe", observe)
    result = kakeya("memory", "allens")
    assert result.exit_code == 0, result.output
    assert "MLX peak" in result.stdout
    assert "warning: MLX peak: 25 % less was forecast than is observed: do not trust this verdict" in result.stdout
    observed = json.loads(kakeya("--json", "memory", "allens").stdout)["hosts"]["allens"]["worker"]["observed"]
    assert [one["observed_bytes"] for one in observed] == [20 << 30, 21 << 30]


@pytest.mark.usefixtures("unreachable")
def test_the_documentation_shows_what_is_printed(inventory: Path) -> None:
    words = ["--inventory", str(inventory), "memory", "allens"]
    printed = CliRunner().invoke(app, words, env={"COLUMNS": "118"}).stdout
    lines = [line.rstrip() for line in printed.splitlines()]
    assert "\n".join(lines) in (ROOT / "docs/memory.md").read_text()
