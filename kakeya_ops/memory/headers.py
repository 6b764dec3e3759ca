"""Safetensors headers: which tensors a shard holds, of what type and size. The tensors themselves are never read.

The format is an eight-byte little-endian length, a JSON header of that length, then the tensors' bytes
(https://huggingface.co/docs/safetensors/index). Types are those that MLX can load, in ``mlx/io/safetensors.cpp``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from kakeya_ops.errors import ModelDirectoryError

DTYPE_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "U16": 2,
    "I16": 2,
    "F16": 2,
    "BF16": 2,
    "U32": 4,
    "I32": 4,
    "F32": 4,
    "U64": 8,
    "I64": 8,
    "C64": 8,
}
"""Bytes of one element of each type that MLX loads. It takes the two eight-bit floats as plain bytes."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a shard, by its header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    shard: str


def read_tensors(shards: Iterable[Path]) -> Iterator[Tensor]:
    """Every tensor of `shards`, shard by shard.

    Raises `ModelDirectoryError` naming the shard, for one that cannot be read, a type that MLX cannot load, or sizes
    that contradict each other.
    """
    for shard in shards:
        for name, entry in _read_header(shard).items():
            if name != "__metadata__":
                yield _describe(shard, name, entry)


def _read_header(shard: Path) -> dict[str, Any]:
    try:
        with shard.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    except OSError as error:
        raise ModelDirectoryError(f"{shard} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise ModelDirectoryError(f"{shard} is not a safetensors file: its header is not JSON") from error
    if not isinstance(header, dict):
        raise ModelDirectoryError(f"{shard} is not a safetensors file: its header is not an object")
    return header


def _describe(shard: Path, name: str, entry: Any) -> Tensor:
    try:
        dtype = str(entry["dtype"])
        shape = tuple(int(size) for size in entry["shape"])
        first, end = (int(offset) for offset in entry["data_offsets"])
    except (TypeError, KeyError, ValueError) as error:
        message = f"{shard} is not a safetensors file: tensor {name[:80]!r} lacks its type, shape or place"
        raise ModelDirectoryError(message) from error
    if dtype not in DTYPE_BYTES:
        raise ModelDirectoryError(f"{shard} holds {name[:80]} as {dtype[:20]}, which MLX cannot load")
    if end - first != prod(shape) * DTYPE_BYTES[dtype] or min(shape, default=0) < 0:
        raise ModelDirectoryError(f"{shard} gives {name[:80]} {end - first} bytes, which is not its shape's size")
    return Tensor(name, dtype, shape, end - first, shard.name)


__all__ = ["DTYPE_BYTES", "Tensor", "read_tensors"]
