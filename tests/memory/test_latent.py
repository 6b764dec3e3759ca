"""Latent attention: what each model file keeps of the same dimensions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kakeya_ops.errors import FootprintUnknown
from kakeya_ops.memory import latent
from kakeya_ops.memory.attention import Layers
from kakeya_ops.memory.config import Config

DIMS = {
    "num_attention_heads": 16,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "hidden_size": 512,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 24,
    "v_head_dim": 40,
    "index_head_dim": 12,
}
CONFIG = Config("any", DIMS)
LATENT_ROW, EXPANDED_ROW = (64 + 8) * 2, 16 * (24 + 8 + 40) * 2


@pytest.mark.parametrize(
    ("read", "rows"),
    [
        (latent.deepseek_v3, [LATENT_ROW] * 2),
        (latent.mistral4, [LATENT_ROW] * 2),
        (latent.longcat_flash, [LATENT_ROW] * 4),
        (latent.deepseek_v2, [EXPANDED_ROW] * 2),
        (latent.minicpm3, [16 * (32 + 32) * 2] * 2),
        (latent.deepseek_v32, [LATENT_ROW, 2 * 12 * 2] * 2),
    ],
)
def test_what_a_row_takes(read: Callable[[Config, int], Layers], rows: list[int]) -> None:
    layers = read(CONFIG, 2)
    assert [leaf.row_bytes for leaf in layers.caches] == rows
    assert {leaf.kind for leaf in layers.caches} == {"full"}
    assert layers.depth == 2


def test_the_larger_array_of_a_row() -> None:
    assert latent.deepseek_v3(CONFIG, 2).caches[0].array_row_bytes == 64 * 2
    assert latent.deepseek_v2(CONFIG, 2).caches[0].array_row_bytes == 16 * 40 * 2


def test_scores_are_latent_where_their_positional_part_is_apart() -> None:
    (apart,) = latent.deepseek_v3(CONFIG, 2).attention
    assert (apart.form, apart.query_width, apart.value_width, apart.expanded_width) == ("latent", 24, 40, 16 * 64)
    (whole,) = latent.deepseek_v2(CONFIG, 2).attention
    assert (whole.form, whole.query_width, whole.value_width, whole.expanded_width) == ("plain", 32, 40, 0)
    (unpacked,) = latent.mistral4(CONFIG, 2).attention
    assert (unpacked.form, unpacked.expanded_width) == ("plain", 16 * 72)


def test_a_missing_dimension_is_unknown() -> None:
    with pytest.raises(FootprintUnknown, match="kv_lora_rank"):
        latent.deepseek_v3(Config("any", DIMS | {"kv_lora_rank": None}), 2)
