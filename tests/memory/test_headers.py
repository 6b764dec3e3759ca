"""Headers of shards: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.memory.headers import DTYPE_BYTES, Tensor, read_tensors
from memory.checkpoints import write_shard

MLX_DTYPES = {
    "BOOL": mx.bool_,
    "U8": mx.uint8,
    "I8": mx.int8,
    "U16": mx.uint16,
    "I16": mx.int16,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "U32": mx.uint32,
    "I32": mx.int32,
    "F32": mx.float32,
    "U64": mx.uint64,
    "I64": mx.int64,
    "C64": mx.complex64,
}


def write_raw(path: Path, header: Any) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    return path


@pytest.mark.parametrize("dtype", MLX_DTYPES)
def test_sizes_are_those_of_the_files_that_mlx_writes(dtype: str, tmp_path: Path) -> None:
    array = mx.zeros((3, 5), MLX_DTYPES[dtype])
    mx.save_safetensors(str(tmp_path / "model.safetensors"), {"a.weight": array})
    (tensor,) = read_tensors([tmp_path / "model.safetensors"])
    assert tensor == Tensor("a.weight", dtype, (3, 5), array.nbytes, "model.safetensors")


def test_eight_bit_floats_are_one_byte_each() -> None:
    assert {DTYPE_BYTES[name] for name in ("F8_E4M3", "F8_E8M0")} == {1}
    assert set(DTYPE_BYTES) == {*MLX_DTYPES, "F8_E4M3", "F8_E8M0"}


def test_only_the_header_is_read(tmp_path: Path) -> None:
    write_shard(tmp_path / "model.safetensors", {"huge": ("BF16", [2**20, 2**20])})
    (tensor,) = read_tensors([tmp_path / "model.safetensors"])
    assert tensor.nbytes == 2**41


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not JSON"),
        ([], "not an object"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "lacks its type, shape or place"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0]}}, "lacks its type, shape or place"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "not its shape's size"),
        ({"a": {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}}, "not its shape's size"),
        ({"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, "a as F64, which MLX cannot load"),
        (7, "not an object"),
    ],
)
def test_a_header_that_contradicts_itself_is_an_error_with_the_file(header: Any, message: str, tmp_path: Path) -> None:
    shard = write_raw(tmp_path / "model-7.safetensors", header)
    with pytest.raises(ModelDirectoryError, match=rf"model-7\.safetensors.*{message}"):
        list(read_tensors([shard]))


def test_a_missing_shard_is_an_error_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelDirectoryError, match=r"gone\.safetensors cannot be read"):
        list(read_tensors([tmp_path / "gone.safetensors"]))
