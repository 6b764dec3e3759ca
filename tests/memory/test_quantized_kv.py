"""Quantized KV: where mlx-lm fails, and what it takes where it does not."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import QuantizedKVCache

from kakeya_ops.memory.model_shape import read_shape
from kakeya_ops.memory.quantized_kv import quantized_kv_fault, quantized_row_bytes
from kakeya_ops.memory.shape import LayerCache
from memory.checkpoints import write_checkpoint
from memory.golden import base
from memory.published import CONFIGS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gemma-4-26b", "rotating"),
        ("gemma-3-27b", "rotating"),
        ("gpt-oss-20b", "rotating"),
        ("deepseek-v3", "latent"),
        ("qwen3-30b", None),
        ("qwen3.5-35b", None),
    ],
)
def test_models_that_fail_are_told_before_they_are_loaded(name: str, reason: str | None, tmp_path: Path) -> None:
    fault = quantized_kv_fault(read_shape(write_checkpoint(tmp_path / "model", CONFIGS[name])))
    assert fault is None if reason is None else reason in (fault or "")


def test_heads_must_be_whole_groups(tmp_path: Path) -> None:
    shape = read_shape(write_checkpoint(tmp_path / "model", base("llama", 2, head_dim=80)))
    assert "width 80 cannot be split into groups of 64" in (quantized_kv_fault(shape) or "")
    assert quantized_kv_fault(shape, group_size=16) is None


def test_six_bits_of_a_head_of_128_do_not_fit_what_mlx_lm_allocates(tmp_path: Path) -> None:
    shape = read_shape(write_checkpoint(tmp_path / "model", CONFIGS["qwen3-30b"]))
    assert "width 128 take another number of words at 6 bits" in (quantized_kv_fault(shape, bits=6) or "")
    rows = mx.zeros((1, 2, 256, 128), mx.bfloat16)
    with pytest.raises(ValueError, match="cannot be broadcast"):
        QuantizedKVCache(64, 6).update_and_fetch(rows, rows)


@pytest.mark.parametrize(("bits", "group_size"), [(8, 64), (4, 64), (4, 32), (8, 32), (3, 64), (6, 64)])
def test_a_quantized_row_has_the_bytes_of_mlx_lms(bits: int, group_size: int) -> None:
    cache = QuantizedKVCache(group_size, bits)
    rows = mx.zeros((1, 2, 256, 64), mx.bfloat16)
    cache.update_and_fetch(rows, rows)
    leaf = LayerCache(0, "full", 2 * 2 * 64 * 2, "")
    assert quantized_row_bytes(leaf, 2, bits, group_size) * 256 == cache.nbytes
