"""The planned identity is the same with and without memory, and what is remembered holds for one key alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.states import PLANNER_INVENTORY, inventory
from kakeya_ops.deploy import planned_identity
from kakeya_ops.deploy.material import plan_identity
from kakeya_ops.deploy.planned_identity import LayoutKey, plan_with_memory, recall_layout, remember_layout
from kakeya_ops.inventory import Inventory
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout

KEY = LayoutKey("w", {"config.json": "c"}, 16, 4, None, "0.1", "0.2", "3.11", "p")
LAYOUT = KvLayout(16, ("KVCache",), (PartLayout("full", (ArrayLayout(0, "keys", "float16", (2, 16, 8)),)),))
OTHERS: dict[str, Any] = {"files": {"config.json": "d"}, "window": 64, "formats": (1, 2), "block_tokens": 32, "sink": 5}


def fleet(model: Path, cache: str = "{window: 256, sink: 2, block_tokens: 32}") -> Inventory:
    return inventory(PLANNER_INVENTORY.replace("~/models/tiny", str(model)) + f"cache: {cache}\n")


@pytest.fixture
def model(tiny_llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_llama, tmp_path / "model"))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Inventory]:
    """The inventories for which MLX was asked."""
    asked: list[Inventory] = []

    def ask(fleet: Inventory) -> Any:
        asked.append(fleet)
        return plan_identity(fleet)

    monkeypatch.setattr(planned_identity, "plan_identity", ask)
    return asked


@pytest.mark.parametrize("name", [field.name for field in fields(LayoutKey)])
def test_a_layout_is_recalled_under_its_own_key_and_under_none_that_differs(name: str, tmp_path: Path) -> None:
    remember_layout(tmp_path, KEY, LAYOUT)
    assert recall_layout(tmp_path, KEY) == LAYOUT
    other = replace(KEY, **{name: OTHERS.get(name, "another")})
    assert recall_layout(tmp_path, other) is None
    # Nor if what lies in its place was kept under another key.
    (written,) = tmp_path.glob("*.json")
    shutil.copy(written, planned_identity._place(tmp_path, other))
    assert recall_layout(tmp_path, other) is None


@given(cut=st.integers(min_value=0, max_value=400), junk=st.binary(max_size=4))
def test_what_is_damaged_is_never_another_layout(
    cut: int, junk: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    memory = tmp_path_factory.mktemp("memory")
    remember_layout(memory, KEY, LAYOUT)
    (path,) = memory.glob("*.json")
    data = path.read_bytes()
    path.write_bytes(data[:cut] + junk + data[cut + len(junk) :])
    assert recall_layout(memory, KEY) in (None, LAYOUT)


def test_a_layout_that_was_changed_by_hand_is_not_believed(tmp_path: Path) -> None:
    remember_layout(tmp_path, KEY, LAYOUT)
    (path,) = tmp_path.glob("*.json")
    document = json.loads(path.read_text())
    document["layout"]["parts"][0]["arrays"][0][2] = "float32"
    path.write_text(json.dumps(document))
    assert recall_layout(tmp_path, KEY) is None


def test_the_second_plan_asks_no_mlx_and_finds_the_same(model: Path, tmp_path: Path, counted: list[Inventory]) -> None:
    planned = [plan_with_memory(fleet(model), "program", tmp_path / "memory") for _ in range(3)]
    assert planned == [plan_identity(fleet(model))] * 3
    assert len(counted) == 1


CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "config.json": lambda model, _: _rewrite(model / "config.json", rope_theta=50000.0),
    "generation_config.json": lambda model, _: (model / "generation_config.json").write_text("{}") and None,
    "mlx": lambda _, patch: patch.setattr(planned_identity, "version", lambda name: f"{name} 99"),
    "python": lambda _, patch: patch.setattr(planned_identity.platform, "python_version", lambda: "3.99"),
}


def _rewrite(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_asks_mlx_again(
    change: str, model: Path, tmp_path: Path, counted: list[Inventory], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_with_memory(fleet(model), "program", tmp_path / "memory")
    CHANGES[change](model, monkeypatch)
    assert plan_with_memory(fleet(model), "program", tmp_path / "memory") == plan_identity(fleet(model))
    assert len(counted) == 2


def test_another_program_other_cache_settings_and_other_weights_ask_mlx_again(
    model: Path, tmp_path: Path, counted: list[Inventory]
) -> None:
    memory = tmp_path / "memory"
    plan_with_memory(fleet(model), "program", memory)
    plan_with_memory(fleet(model), "another", memory)
    for number, cache in enumerate(("{window: 256, sink: 2}", "{window: 256, block_tokens: 32}", "{sink: 2}")):
        assert plan_with_memory(fleet(model, cache), "program", memory) == plan_identity(fleet(model, cache))
        assert len(counted) == 3 + number
    (shard,) = model.glob("model*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert plan_with_memory(fleet(model), "program", memory).weights == plan_identity(fleet(model)).weights
    assert len(counted) == 6


def test_the_tokenizer_is_in_the_identity_though_not_in_the_key(
    model: Path, tmp_path: Path, counted: list[Inventory]
) -> None:
    before = plan_with_memory(fleet(model), "program", tmp_path / "memory")
    _rewrite(model / "tokenizer_config.json", model_max_length=7)
    after = plan_with_memory(fleet(model), "program", tmp_path / "memory")
    assert after.tokenizer != before.tokenizer
    assert len(counted) == 1


def test_only_the_latest_are_kept_and_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planned_identity, "_MOST_REMEMBERED", 2)
    for number in range(4):
        remember_layout(tmp_path, replace(KEY, program=str(number)), LAYOUT)
    assert recall_layout(tmp_path, replace(KEY, program="0")) is None
    assert recall_layout(tmp_path, replace(KEY, program="3")) == LAYOUT
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "file").touch()
    remember_layout(tmp_path / "file/below", KEY, LAYOUT)


def test_a_deploy_with_a_remembered_layout_imports_no_mlx_and_no_numpy() -> None:
    code = (
        "import sys, kakeya_ops.cli.deploying, kakeya_ops.cli.applying, kakeya_ops.remote.connect\n"
        "import kakeya_ops.deploy.planned_identity, kakeya_ops.deploy.model_sync, kakeya_ops.deploy.program\n"
        "print({'mlx', 'mlx_lm', 'numpy', 'transformers', 'uvicorn', 'starlette'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
