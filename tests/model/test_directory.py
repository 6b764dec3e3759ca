from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import ExitCode, ModelDirectoryError
from kakeya_ops.model import ModelDirectory
from kakeya_ops.model.directory import is_read

MakeModel = Callable[..., Path]

KEYS = st.sampled_from(["a", "b", "a.b", '"a', "rope_x", "text_config", "quantization", "quantization_config"])
VALUES = st.recursive(st.integers(0, 2), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=4)


def opened(config: dict[str, Any], modelopt: dict[str, Any] | None = None) -> ModelDirectory:
    return ModelDirectory(Path("/m"), {"model_type": "llama"} | config, (), (), (), modelopt)


def test_a_whole_directory(make_model: MakeModel) -> None:
    path = make_model(shards=3)
    directory = ModelDirectory.open(path)
    assert directory.model_type == "llama"
    assert [shard.name for shard in directory.shards] == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert [file.name for file in directory.tokenizer_files] == ["tokenizer.json", "tokenizer_config.json"]
    assert directory.context_tokens() == 4096
    assert directory.quantization() is None
    assert directory.rope() == {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert set(directory.geometry()) == {
        "model_type",
        "architectures",
        "hidden_size",
        "num_hidden_layers",
        "max_position_embeddings",
    }


def remove_config(path: Path) -> None:
    (path / "config.json").unlink()


def only(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        for file in path.iterdir():
            file.unlink()
        (path / name).write_bytes(b"x")
        (path / "config.json").write_text('{"model_type": "llama"}')

    return change


def empty(path: Path) -> None:
    for file in path.iterdir():
        file.unlink()


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).write_bytes(data)

    return change


def cut_off(path: Path) -> None:
    shard = path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-10])


def grown(path: Path) -> None:
    shard = path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes() + b"x")


def dangle(name: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / name).unlink()
        (path / name).symlink_to(path / "blobs" / "nothing")

    return change


def lose_shard(path: Path) -> None:
    (path / "model-00002-of-00002.safetensors").unlink()


def lose_all_shards(path: Path) -> None:
    for shard in path.glob("*.safetensors"):
        shard.unlink()


SECOND = "model-00002-of-00002.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove_config, r"config\.json is missing"),
        (empty, "is not a model directory: it has no config.json"),
        (only("model.gguf"), "holds GGUF alone"),
        (only("adapters.safetensors"), "holds adapters alone"),
        (only("adapter_model.safetensors"), "holds adapters alone"),
        (only("pytorch_model.bin"), r"holds pytorch_model\.bin, but no model\*\.safetensors"),
        (only("weights.00.safetensors"), r"holds weights\.00\.safetensors, but no model\*\.safetensors"),
        (only("readme.md"), r"holds no model\*\.safetensors"),
        (write("config.json", b"{"), r"config\.json is not JSON"),
        (write("config.json", b"\xff"), r"config\.json is not JSON"),
        (write("config.json", b"[" * 100_000), r"config\.json is not JSON"),
        (write("config.json", b"[]"), r"config\.json does not hold a JSON object"),
        (write("config.json", b"{}"), r"config\.json does not say its model_type"),
        (write("config.json", POINTER), r"config\.json is a Git LFS pointer"),
        (dangle("config.json"), r"config\.json is a link to nothing"),
        (lose_shard, f"lacks {SECOND}, which model.safetensors.index.json names"),
        (lose_all_shards, "lacks model-00001"),
        (dangle(SECOND), f"{SECOND} is a link to nothing"),
        (write(SECOND, POINTER), f"{SECOND} is a Git LFS pointer"),
        (cut_off, f"{SECOND} is cut off"),
        (grown, f"{SECOND} has bytes that its header does not know"),
        (write(SECOND, b""), f"{SECOND} is not a safetensors file, or is cut off"),
        (write("model.safetensors.index.json", b"[]"), "index.json does not hold a JSON object"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(
    make_model: MakeModel, damage: Callable[[Path], None], message: str
) -> None:
    path = make_model(shards=2)
    ModelDirectory.open(path)
    damage(path)
    with pytest.raises(ModelDirectoryError, match=message) as caught:
        ModelDirectory.open(path)
    assert caught.value.exit_code is ExitCode.INPUT
    assert str(path) in caught.value.message


def test_an_index_without_any_shard(make_model: MakeModel) -> None:
    path = make_model()
    (path / "model.safetensors").unlink()
    (path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ModelDirectoryError, match="lacks"):
        ModelDirectory.open(path)


def test_paths_that_are_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelDirectoryError, match="does not exist"):
        ModelDirectory.open(tmp_path / "none")
    gguf = tmp_path / "model.gguf"
    gguf.touch()
    with pytest.raises(ModelDirectoryError, match="is a GGUF file, not an MLX model directory"):
        ModelDirectory.open(gguf)


def test_links_to_files_elsewhere_are_followed(make_model: MakeModel, tmp_path: Path) -> None:
    path = make_model()
    (path / "model.safetensors").rename(tmp_path / "blob")
    (path / "model.safetensors").symlink_to(tmp_path / "blob")
    assert ModelDirectory.open(path).shards == (path / "model.safetensors",)


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 8}, 8),
        ({"text_config": {"max_position_embeddings": 9}}, 9),
        ({"max_position_embeddings": 8, "text_config": {"max_position_embeddings": 9}}, 9),
        ({"max_position_embeddings": 8, "text_config": {}}, 8),
        ({"max_position_embeddings": 8, "text_config": None}, 8),
        ({}, None),
        *(({"max_position_embeddings": odd}, None) for odd in ("8", True, 0, -1, 8.0, None)),
    ],
)
def test_context_is_what_the_configuration_says(config: dict[str, Any], tokens: int | None) -> None:
    assert opened(config).context_tokens() == tokens


def test_nested_keys_keep_their_place() -> None:
    directory = opened({"text_config": {"hidden_size": 4, "rope_parameters": {"a": 1}, "layer_types": ["full", "x"]}})
    assert directory.rope() == {"text_config.rope_parameters": {"a": 1}}
    assert directory.geometry() == {
        "model_type": "llama",
        "text_config.hidden_size": 4,
        "text_config.layer_types": ["full", "x"],
    }


def test_a_dot_within_a_key_is_not_a_way_into_a_section() -> None:
    nested, dotted = opened({"a": {"b": 1}}), opened({"a.b": 1})
    assert nested.geometry() != dotted.geometry()
    assert opened({'"a': {'b"': 1}}).geometry() != dotted.geometry()
    assert opened({"a": {"rope": 1}}).rope() != opened({"a.rope": 1}).rope()


def test_quantization_in_mlx_lms_order_of_preference() -> None:
    four, eight = {"bits": 4}, {"bits": 8}
    assert opened({"quantization": four, "quantization_config": eight}, {"bits": 2}).quantization() == four
    assert opened({"quantization_config": eight}, {"bits": 2}).quantization() == eight
    assert opened({"text_config": {"quantization_config": eight}}, {"bits": 2}).quantization() == eight
    assert opened({}, {"bits": 2}).quantization() == {"bits": 2}


def test_a_second_quantization_counts_only_where_it_differs() -> None:
    four, eight = {"bits": 4}, {"bits": 8}
    assert "quantization_config" not in opened({"quantization": four, "quantization_config": four}).geometry()
    assert opened({"quantization": four, "quantization_config": eight}).geometry()["quantization_config"] == eight


def test_notes_on_the_origin_do_not_count() -> None:
    assert opened({"transformers_version": "4"}).geometry() == opened({"_name_or_path": "x"}).geometry()


@given(CONFIGS, CONFIGS)
def test_no_difference_is_missed(one: dict[str, Any], other: dict[str, Any]) -> None:
    def seen(config: dict[str, Any]) -> Any:
        directory = opened(config)
        return directory.quantization(), directory.rope(), directory.geometry()

    if seen(one) == seen(other):
        assert normal(one) == normal(other)
    assert seen(one) == seen(copy.deepcopy(one))


def normal(config: dict[str, Any]) -> Any:
    """`config` with equal, empty or repeated quantization entries as one, which mean the same to mlx-lm."""
    directory = opened(config)
    return json.loads(json.dumps([directory.quantization(), strip(config, directory.quantization())], sort_keys=True))


def strip(config: Any, in_force: Any) -> Any:
    if not isinstance(config, dict):
        return config
    return {
        key: value if "rope" in key else strip(value, in_force)
        for key, value in config.items()
        if not (key.startswith("quantization") and value == in_force)
    }


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("config.json", True),
        ("model-00001-of-00002.safetensors", True),
        ("model.safetensors.index.json", True),
        ("tokenizer_config.json", True),
        ("chat_template.jinja", True),
        ("additional_chat_templates/tools.jinja", True),
        ("README.md", False),
        ("consolidated.safetensors", False),
        ("backup/config.json", False),
        (".incoming/model.safetensors", False),
        ("model-old/weights.safetensors", False),
    ],
)
def test_which_files_have_a_part_in_what_a_model_computes(name: str, read: bool) -> None:
    assert is_read(name) is read
