"""Who a model is, found without loading it, and what the arithmetic depends on here."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_bench import SETTINGS
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.identify import read_identity, read_runtime
from kakeya_ops.errors import ModelDirectoryError, UnsupportedModel
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from tiny_models import MakeFamily


def copied(path: Path, out: Path, **changes: Any) -> Path:
    """A copy of the model in `path` with another configuration."""
    shutil.copytree(path, out)
    config = json.loads((out / "config.json").read_text()) | changes
    (out / "config.json").write_text(json.dumps(config))
    return out


def difference(ours: CacheIdentity, theirs: CacheIdentity) -> str | None:
    found = ours.first_difference(theirs)
    return found and found[0]


def test_the_identity_is_that_of_the_loaded_model(tiny_llama: Path, shared_engine: Engine) -> None:
    assert read_identity(tiny_llama, SETTINGS).digest == shared_engine.identity.digest


def test_equal_models_in_other_places_are_equal(tiny_llama: Path, tmp_path: Path) -> None:
    assert read_identity(copied(tiny_llama, tmp_path / "copy"), SETTINGS) == read_identity(tiny_llama, SETTINGS)


def test_other_weights_are_another_model(tiny_llama: Path, tmp_path: Path) -> None:
    other = make_tiny_llama(tmp_path / "other", seed=1)
    assert difference(read_identity(tiny_llama, SETTINGS), read_identity(other, SETTINGS)) == "weights"


def test_another_rope_is_another_model(tiny_llama: Path, tmp_path: Path) -> None:
    other = copied(tiny_llama, tmp_path / "other", rope_theta=5000.0)
    assert difference(read_identity(tiny_llama, SETTINGS), read_identity(other, SETTINGS)) == "rope"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (replace(SETTINGS, block_tokens=32), "block_tokens"),
        (replace(SETTINGS, window=64), "sink"),
        (replace(SETTINGS, sink=0, window=64), "window"),
        (replace(SETTINGS, sink=9), None),
    ],
)
def test_the_cache_section_is_part_of_it(tiny_llama: Path, settings: CacheSettings, field: str | None) -> None:
    assert difference(read_identity(tiny_llama, SETTINGS), read_identity(tiny_llama, settings)) == field


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 3},
        {"hidden_size": 32},
        {"model_type": "no_such_family"},
        {"model_file": "model.py"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_mlx_lm_cannot_build_is_refused(tiny_llama: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    path = copied(tiny_llama, tmp_path / "broken", **changes)
    # Code of the model's own is not even read.
    (path / "model.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelDirectoryError, match="broken"):
        read_identity(path, SETTINGS)


def test_a_window_that_a_family_does_not_bear_is_refused(
    tiny_family: MakeFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kakeya_ops.engine import sink_window

    monkeypatch.setitem(sink_window.NO_WINDOW_FAMILIES, "qwen3", "of a test")
    read_identity(tiny_family("qwen3"), SETTINGS)
    with pytest.raises(UnsupportedModel, match="qwen3"):
        read_identity(tiny_family("qwen3"), replace(SETTINGS, window=64))


def test_the_runtime_names_what_the_arithmetic_depends_on() -> None:
    runtime = read_runtime()
    assert runtime == read_runtime()
    assert Runtime.from_json(runtime.to_json()) == runtime
    assert runtime.backend in {"cpu", "gpu"}
    assert all(runtime.to_json().values())
    assert runtime.first_difference(replace(runtime, threads="another BLAS")) == (
        "threads",
        runtime.threads,
        "another BLAS",
    )
