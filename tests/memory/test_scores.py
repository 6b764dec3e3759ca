"""Scores: which attention is fused, and what the others need."""

from __future__ import annotations

import pytest

from kakeya_ops.memory.scores import CPU, METAL, expert_bytes, is_fused, score_need
from kakeya_ops.memory.shape import AttentionShape, ExpertShape


def plain(query: int, value: int | None = None, **more) -> AttentionShape:
    return AttentionShape(1, 16, query, query if value is None else value, **more)


@pytest.mark.parametrize("width", [64, 72, 80, 96, 128])
def test_usual_widths_are_fused_on_metal_and_never_on_cpu(width: int) -> None:
    assert is_fused(plain(width), 64, METAL)
    assert not is_fused(plain(width), 64, CPU)
    need = score_need(plain(width), 2048, 100_000, 2, METAL)
    assert (need.nbytes, need.buffer_bytes) == (0, 0)
    assert "fused" in need.source


@pytest.mark.parametrize(
    "shape",
    [plain(256), plain(512), plain(192), plain(192, 128), plain(128, own_scores=True), plain(128, form="latent")],
    ids=str,
)
def test_all_else_has_its_scores_in_memory(shape: AttentionShape) -> None:
    assert not is_fused(shape, 64, METAL)
    assert score_need(shape, 64, 1000, 2, METAL).buffer_bytes == 16 * 64 * 1000 * 2


def test_a_plain_need_is_one_buffer_and_a_mask() -> None:
    # 16 heads * 2048 * 2 B + 2048 B for each token: https://github.com/ml-explore/mlx-lm/issues/1480
    assert score_need(plain(256), 2048, 1, 2, METAL).nbytes == 65_536 + 2_048


def test_a_latent_need_is_scores_and_unpacked_keys_and_values_twice() -> None:
    # https://github.com/ml-explore/mlx-lm/pull/839
    deepseek = AttentionShape(61, 128, 128, 128, "latent", expanded_width=128 * 256)
    assert score_need(deepseek, 2048, 1, 2, METAL).nbytes == 2 * 524_288 + 2 * 65_536 + 2_048


def test_the_source_has_the_numbers() -> None:
    source = score_need(plain(192, 128), 512, 4096, 2, METAL).source
    assert source.startswith("1 × num_attention_heads 16 × 512 tokens × 4096 keys × 2 B + mask 512 × 4096 B")
    assert METAL.name in source
    assert "head width 192 by 128 is not fused" in source


def test_a_block_of_experts() -> None:
    # gemma-4-26b in steps of 2048: 0.32 GB
    assert round(expert_bytes(ExpertShape(8, 2816, 704), 2048, 2) / 1e9, 2) == 0.32
