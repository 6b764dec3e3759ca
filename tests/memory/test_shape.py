"""Shapes against reality: what real models of every family load and keep, to the byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from family_runs import uncompiled
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.leaves import make_cache
from kakeya_ops.engine.sink_window import NO_WINDOW_FAMILIES
from kakeya_ops.memory.model_shape import read_shape
from kakeya_ops.memory.rows import sequence_bytes
from kakeya_ops.memory.shape import LayerCache, ModelShape
from memory.golden import ROWS, Golden, base
from memory.real_models import held_bytes, load, loaded_bytes, run, write_model

BLOCK_TOKENS, SINK, WINDOW = 64, 4, 200
Loaded = tuple[Any, ModelShape]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Golden], Loaded]:
    """The real model of a row and the shape that was read from its files, each made once."""
    made: dict[str, Loaded] = {}

    def make(row: Golden) -> Loaded:
        if row.name not in made:
            path = tmp_path_factory.mktemp("model")
            write_model(path, row.config, float32=row.float32)
            made[row.name] = load(path), read_shape(path)
        return made[row.name]

    return make


def windowed(leaf: LayerCache) -> LayerCache:
    """`leaf` under the inventory's sink and window."""
    return replace(leaf, kind="window", window=SINK + WINDOW) if leaf.kind == "full" else leaf


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_weights_are_the_bytes_that_mlx_lm_loads(row: Golden, real: Callable[[Golden], Loaded]) -> None:
    model, shape = real(row)
    assert shape.weights_bytes == loaded_bytes(model)
    assert shape.element_bytes == (4 if row.float32 else 2)


@pytest.mark.parametrize(("bits", "said"), [(4, 4), (8, 8), (3, 3), (4, 8)])
def test_packed_weights_are_the_bytes_that_mlx_lm_loads_whatever_the_configuration_says(
    bits: int, said: int, tmp_path: Path
) -> None:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = base("mixtral", 2, num_key_value_heads=2, **experts)
    path = write_model(tmp_path, config | {"quantization": {"group_size": 64, "bits": bits}}, float32=False)
    written = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(written | {"quantization": {"group_size": 64, "bits": said}}))
    shape = read_shape(path)
    assert shape.weights_bytes == loaded_bytes(load(path))
    assert shape.element_bytes == 2
    assert bits < 8 * shape.quantized_bytes / shape.quantized_elements < bits + 0.6


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_cache_holds_the_bytes_that_the_shape_says(row: Golden, real: Callable[[Golden], Loaded]) -> None:
    model, shape = real(row)
    with uncompiled():
        for step, tokens, singles in ((row.step, row.prompt - 1, 4), (BLOCK_TOKENS, 330, 0)):
            cache = make_cache(model, CacheSettings(BLOCK_TOKENS))
            run(model, cache, tokens, step, singles, evaluated=False)
            assert held_bytes(cache) == sequence_bytes(shape.layers, tokens, step, singles)
            assert step != row.step or held_bytes(cache) == row.final_bytes


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_sink_and_a_window_bound_what_full_layers_keep(row: Golden, real: Callable[[Golden], Loaded]) -> None:
    if row.config["model_type"] in NO_WINDOW_FAMILIES:
        pytest.skip("the engine serves this family with its whole context only")
    model, shape = real(row)
    with uncompiled():
        cache = make_cache(model, CacheSettings(BLOCK_TOKENS, SINK, WINDOW))
        run(model, cache, 330, BLOCK_TOKENS, evaluated=False)
    assert held_bytes(cache) == sequence_bytes(map(windowed, shape.layers), 330, BLOCK_TOKENS)
