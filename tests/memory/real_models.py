"""Real, random models of mlx-lm's own classes, written to disk and loaded again, for measuring what they allocate."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import _get_classes, load_model

from kakeya_ops.engine.leaves import flatten
from kakeya_ops.memory.rows import chunks_of


def write_model(path: Path, config: Mapping[str, Any], *, float32: bool, extra: Mapping[str, Any] = {}) -> Path:
    """The model of `config` with random weights, and `extra` tensors beside them.

    A `quantization` in the configuration is carried out, with its `bits` but for routers, which get 8.
    """
    model_class, arguments = _get_classes(json.loads(json.dumps(config)))
    model = model_class(arguments.from_dict(json.loads(json.dumps(config))))
    dtype = mx.float32 if float32 else mx.bfloat16
    model.update(tree_map(lambda array: array.astype(dtype), model.parameters()))
    if quantization := config.get("quantization"):
        nn.quantize(model, quantization["group_size"], quantization["bits"], class_predicate=_bits_of)
    path.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path / "model.safetensors"), dict(tree_flatten(model.parameters())) | dict(extra))
    (path / "config.json").write_text(json.dumps(config))
    return path


def _bits_of(path: str, module: Any) -> Any:
    if path.endswith(".gate"):
        return {"group_size": 64, "bits": 8}
    return hasattr(module, "to_quantized")


def load(path: Path) -> Any:
    """The model as mlx-lm loads it, which refuses tensors that are too many or too few."""
    return load_model(path)[0]


def loaded_bytes(model: Any) -> int:
    """Bytes of all its tensors."""
    return sum(array.nbytes for _, array in tree_flatten(model.parameters()))


def run(model: Any, cache: list[Any], tokens: int, step: int, singles: int = 0, *, evaluated: bool = True) -> None:
    """A prompt in chunks and then single tokens, evaluating no more than Kakeya's prefill does.

    What an array will take is known before it is evaluated, so that where it is not, only time is saved.
    """
    for chunk in chunks_of(tokens, step, singles):
        model(mx.zeros((1, chunk), mx.int32), cache=cache)
        if evaluated:
            mx.eval([leaf.state for leaf in flatten(cache)])


def held_bytes(cache: Iterable[Any]) -> int:
    """What the leaves say that they hold."""
    return sum(leaf.nbytes for leaf in flatten(list(cache)))


__all__ = ["held_bytes", "load", "loaded_bytes", "run", "write_model"]
