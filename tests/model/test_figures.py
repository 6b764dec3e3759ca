from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.figures import check_figures

FILE = Path("/m/config.json")
NAMES = ("model.embed_tokens.weight", "model.layers.0.mlp.weight", "model.layers.1.mlp.weight")
FINE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 260,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
}
NAN, INFINITY = {"__float__": "NaN"}, {"__float__": "Infinity"}


def fault(names: tuple[str, ...] = NAMES, **changes: Any) -> str | None:
    """What is said of a fine configuration with `changes`, after the file's name."""
    try:
        check_figures(FILE, FINE | changes, names)
    except ModelDirectoryError as error:
        return error.message.removeprefix(f"{FILE}: ")
    return None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0, not a whole number from 1 to 2147483647"),
        ({"vocab_size": -5}, "vocab_size is -5, not a whole number from 1 to 2147483647"),
        ({"vocab_size": 2**31}, "vocab_size is 2147483648, not a whole number from 1 to 2147483647"),
        ({"hidden_size": "x"}, "hidden_size is 'x', not a whole number from 1 to 2147483647"),
        ({"hidden_size": True}, "hidden_size is True, not a whole number from 1 to 2147483647"),
        ({"head_dim": -1}, "head_dim is -1, not a whole number from 0 to 2147483647"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers is 2.0, not a whole number from 1 to 2147483647"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, but the weights hold 2 layers"),
        ({"rope_theta": NAN}, "rope_theta is NaN, which is not a number"),
        ({"anything": NAN}, "anything is NaN, which is not a number"),
        ({"rope_theta": INFINITY}, "rope_theta is Infinity, not a positive number"),
        ({"rope_theta": 0}, "rope_theta is 0, not a positive number"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps is 'x', not a positive number"),
        ({"text_config": {"hidden_size": 0}}, "text_config.hidden_size is 0, not a whole number from 1 to 2147483647"),
        ({"rope_scaling": {"factor": NAN}}, "rope_scaling.factor is NaN, which is not a number"),
        ({"rope_parameters": {"rope_theta": -1.0}}, "rope_parameters.rope_theta is -1.0, not a positive number"),
    ],
)
def test_what_no_model_can_have_is_named(changes: dict[str, Any], sentence: str) -> None:
    assert fault(**changes) == sentence


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": None, "head_dim": None},
        {"num_key_value_heads": [4, 2], "intermediate_size": [8, 8]},
        {"time_step_limit": [0.0, INFINITY]},
        {"time_step_max": INFINITY},
        {"vision_config": {"num_attention_heads": 0}},
        {"rope_scaling": None},
        {"text_config": "x", "sliding_window": 0},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
)
def test_what_a_family_may_mean_is_left_to_it(changes: dict[str, Any]) -> None:
    assert fault(**changes) is None


@pytest.mark.parametrize(
    ("names", "layers", "sentence"),
    [
        (("layers.0.weight",), 1024, None),
        (("layers.0.weight",), 1025, "num_hidden_layers is 1025, but the weights hold 1 layer"),
        (("layers.0.experts.2047.weight",), 2048, None),
        (("layers.0.experts.127.weight",), 10**9, "num_hidden_layers is 1000000000, but the weights hold 128 layers"),
        (("layer0", "fc2.weight"), 1025, "num_hidden_layers is 1025, but the weights hold 0 layers"),
    ],
)
def test_endless_layers_are_bounded_by_what_the_weights_number(
    names: tuple[str, ...], layers: int, sentence: str | None
) -> None:
    assert fault(names, num_hidden_layers=layers) == sentence


@given(
    st.dictionaries(
        st.sampled_from([*FINE, "text_config", "rope_scaling"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(NAN),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*FINE, "x"]), inner),
        ),
    )
)
def test_whatever_a_configuration_holds_is_fine_or_refused(config: dict[str, Any]) -> None:
    with suppress(ModelDirectoryError):
        check_figures(FILE, config, NAMES)


def test_a_directory_with_such_a_figure_is_not_opened(tiny_llama: Path, tmp_path: Path) -> None:
    for file in tiny_llama.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_theta": float("nan")}))
    with pytest.raises(ModelDirectoryError, match=r"config\.json: rope_theta is NaN"):
        ModelDirectory.open(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**9}))
    with pytest.raises(ModelDirectoryError, match="the weights hold 2 layers"):
        ModelDirectory.open(tmp_path)
