"""The table of families against mlx-lm's own."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from mlx_lm.utils import MODEL_REMAPPING

from kakeya_ops.errors import FootprintUnknown
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.families import FAMILIES, family_of
from memory.golden import MLA, base, text

NOT_DERIVED = ("deepseek_v41", "kimi_k3", "gear", "rwkv7", "minimax_m3_vl", "muse_spark", "bailing_hybrid")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_a_model_file_of_mlx_lm(name: str) -> None:
    assert find_spec(f"mlx_lm.models.{name}")


@pytest.mark.parametrize(("name", "file"), MODEL_REMAPPING.items())
def test_names_are_remapped_as_mlx_lm_does(name: str, file: str) -> None:
    if file in FAMILIES:
        assert family_of(Config(name, {})) is FAMILIES[file]
    else:
        with pytest.raises(FootprintUnknown):
            family_of(Config(name, {}))


@pytest.mark.parametrize("name", NOT_DERIVED)
def test_families_with_caches_of_their_own_are_unknown(name: str) -> None:
    with pytest.raises(FootprintUnknown, match=f"'{name}'"):
        family_of(Config(name, {}))


def kinds(config: dict) -> str:
    values = config.get("text_config", config)
    layers = family_of(Config(config["model_type"], config)).read(Config(config["model_type"], values), 2)
    return "".join(leaf.kind[0] for leaf in layers.caches)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (base("cohere2", 5, sliding_window=64), "wwwfw"),
        (base("olmo3", 5, sliding_window=64), "wwwfw"),
        (base("exaone4", 5, sliding_window=64, sliding_window_pattern="LLG"), "wwfww"),
        (base("exaone4", 2, sliding_window=None, sliding_window_pattern=None), "ff"),
        (base("ministral3", 2, sliding_window=64, layer_types=["sliding_attention", "full_attention"]), "wf"),
        (text("mistral3", base("ministral3", 2, sliding_window=64, layer_types=["sliding_attention"] * 2)), "ff"),
        (text("mistral3", base("mistral4", 2, **MLA)), "ff"),
        (text("qwen2_5_vl", base("qwen2", 2, sliding_window=64)), "ff"),
        (text("llama4", base("llama4_text", 4, attention_chunk_size=64)), "cccf"),
        (base("nanbeige", 2, num_loops=3), "ffffff"),
        (base("phi3", 2, sliding_window=64), "ff"),
        (base("starcoder2", 2, sliding_window=64), "ff"),
        (base("mixtral", 2, sliding_window=64), "ff"),
        (base("glm4_moe_lite", 2, **MLA), "ff"),
        (base("longcat_flash", 2, **MLA, num_layers=2), "ffff"),
        (
            base(
                "gemma3n",
                4,
                sliding_window=64,
                num_kv_shared_layers=1,
                layer_types=["sliding_attention", "full_attention"] * 2,
            ),
            "wfw",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_layers_are_of_the_kind_that_the_model_file_makes(config: dict, expected: str) -> None:
    assert kinds(config) == expected


def test_more_shared_layers_than_layers_are_unknown() -> None:
    with pytest.raises(FootprintUnknown, match="leaves 0 of 4 layers"):
        kinds(base("gemma4_text", 4, num_kv_shared_layers=4, sliding_window=64))


def test_loops_that_cannot_be_counted_are_unknown() -> None:
    with pytest.raises(FootprintUnknown, match="loop_loss_weights"):
        kinds(base("nanbeige", 2, loop_loss_weights=[1.0]))
