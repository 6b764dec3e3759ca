"""Model directories made of headers: shards have the size that their header promises, and no contents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from kakeya_ops.memory.headers import DTYPE_BYTES

Tensors = Mapping[str, tuple[str, Sequence[int]]]
"""``{name: (dtype, shape)}``."""


def write_shard(path: Path, tensors: Tensors) -> None:
    """A shard of which only the header is written; the rest is a hole in the file."""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        start, end = end, end + prod(shape) * DTYPE_BYTES.get(dtype, 8)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with path.open("r+b") as file:
        file.truncate(8 + len(text) + end)


def write_checkpoint(path: Path, config: Mapping[str, Any], tensors: Tensors | None = None, *, shards: int = 1) -> Path:
    """A model directory; without `tensors` it has one small tensor, which makes its activations bfloat16."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    named = list((tensors or {"model.norm.weight": ("BF16", [8])}).items())
    if shards == 1:
        write_shard(path / "model.safetensors", dict(named))
        return path
    weight_map = {}
    for number in range(shards):
        part = dict(named[number::shards])
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        write_shard(path / name, part)
        weight_map |= dict.fromkeys(part, name)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return path


def linear(name: str, rows: int, columns: int, *, bits: int = 4, group: int = 64) -> dict[str, tuple[str, list[int]]]:
    """The three tensors of an affine-quantized matrix, with half-precision scales."""
    grouped = [rows, columns // group]
    return {
        f"{name}.weight": ("U32", [rows, columns * bits // 32]),
        f"{name}.scales": ("BF16", grouped),
        f"{name}.biases": ("BF16", grouped),
    }


__all__ = ["Tensors", "linear", "write_checkpoint", "write_shard"]
