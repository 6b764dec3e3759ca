"""Reading a model directory: published sizes, and each trap that a directory can hold."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from subprocess import run as run_process

import mlx.core as mx
import pytest

from kakeya_ops.errors import FootprintUnknown, ModelDirectoryError
from kakeya_ops.memory.model_shape import read_shape
from memory.checkpoints import Tensors, linear, write_checkpoint, write_shard
from memory.golden import base, text
from memory.published import CONFIGS, VISION_TOWER, headers, publish
from memory.real_models import load, loaded_bytes, write_model

LLAMA = base("llama", 2, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True)
QUANTIZED = {"quantization": {"group_size": 64, "bits": 4}}
NORM = {"model.norm.weight": ("BF16", [64])}


def tensors(dtype: str = "BF16") -> dict[str, tuple[str, list[int]]]:
    """A few of the tensors of `LLAMA`."""
    rows = {"model.embed_tokens.weight": [100, 64], "model.norm.weight": [64]}
    rows |= {f"model.layers.{layer}.self_attn.k_proj.weight": [32, 64] for layer in range(2)}
    return {name: (dtype, shape) for name, shape in rows.items()}


def size(named: Tensors) -> int:
    element = {"U32": 4, "F32": 4, "BF16": 2}
    return sum(element[dtype] * int(mx.zeros(shape).size) for dtype, shape in named.values())


LOADED_GB = {
    ("qwen3-30b", 4): 17.18,
    ("qwen3-30b", 5): 21.00,
    ("qwen3-30b", 6): 24.81,
    ("qwen3-30b", 8): 32.44,
    ("qwen3-4b", 4): 2.263,
    ("qwen3-4b", 5): 2.766,
    ("qwen3-4b", 6): 3.268,
    ("qwen3-4b", 8): 4.274,
    ("qwen3-4b", None): 8.045,
    ("deepseek-v3", 4): 377.6,
    ("qwen3.5-35b", 4): 19.51,
    ("gemma-4-26b", 4): 14.20,
    ("gemma-4-31b", 4): 17.27,
    ("glm-4.5-air", 3): 46.8,
    ("glm-4.5-air", 4): 60.1,
    ("glm-4.5-air", 8): 113.6,
    ("llama-3.1-8b", 4): 4.52,
    ("llama-3.1-70b", 4): 39.69,
    ("llama-3.1-70b", None): 141.1,
    ("mistral-small-24b", 4): 13.26,
    ("qwen3-next-80b", 4): 44.84,
    ("gemma-3-27b", 4): 15.99,
}
"""Facts that others published or that follow from published shapes; 141 GB is hf-mem's and accelerate's Llama-70B."""


@pytest.mark.parametrize(("name", "bits"), LOADED_GB, ids=lambda value: str(value))
def test_published_models_have_their_published_sizes(name: str, bits: int | None, tmp_path: Path) -> None:
    shape = read_shape(publish(tmp_path / "model", name, bits))
    digits = len(str(LOADED_GB[name, bits]).rpartition(".")[2])
    assert round(shape.weights_bytes / 1e9, digits) == LOADED_GB[name, bits]


@pytest.mark.parametrize(("name", "gigabytes"), [("gpt-oss-20b", 12.08), ("gpt-oss-120b", 63.25)])
def test_experts_in_mxfp4_are_counted_as_they_are_packed(name: str, gigabytes: float, tmp_path: Path) -> None:
    named = headers(CONFIGS[name], 8, mxfp4_experts=True)
    quantization = {"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}
    shape = read_shape(write_checkpoint(tmp_path / "model", CONFIGS[name] | quantization, named))
    assert round(shape.weights_bytes / 1e9, 2) == gigabytes


def test_a_vision_tower_is_in_the_files_and_not_in_memory(tmp_path: Path) -> None:
    path = publish(tmp_path / "model", "gemma-4-26b", extra=VISION_TOWER)
    shape = read_shape(path)
    assert (round(shape.weights_bytes / 1e9, 2), shape.dropped_bytes) == (14.20, 1_140_000_000)
    assert sum(file.stat().st_size for file in path.glob("*.safetensors")) > 15.3e9


def test_quantized_weights_are_counted_for_who_wants_fewer_bits(tmp_path: Path) -> None:
    shape = read_shape(publish(tmp_path / "model", "qwen3-4b"))
    assert shape.quantized_bytes * 8 / shape.quantized_elements == 4.5
    assert shape.weights_bytes - shape.quantized_bytes < 1e6


KV = {
    "gemma-4-26b": (20_480, 209.7),
    "gemma-4-31b": (81_920, 839),
    "gemma-3-27b": (81_920, 436),
    "qwen3-30b": (98_304, 0),
    "qwen3-next-80b": (24_576, 77.3),
    "qwen3.5-35b": (20_480, 64.4),
    "llama-3.1-8b": (131_072, 0),
    "llama-3.1-70b": (327_680, 0),
    "gpt-oss-20b": (24_576, 3.1),
    "gpt-oss-120b": (36_864, 4.7),
    "mistral-small-24b": (163_840, 0),
    "deepseek-v3": (70_272, 0),
    "deepseek-v3.2": (101_504, 0),
    "deepseek-v2-lite": (276_480, 0),
    "glm-4.5-air": (188_416, 0),
}


@pytest.mark.parametrize("name", KV)
def test_published_models_keep_what_was_published_per_token_and_in_all(name: str, tmp_path: Path) -> None:
    layers = read_shape(write_checkpoint(tmp_path / "model", CONFIGS[name])).layers
    per_token, constant = KV[name]
    assert sum(leaf.row_bytes for leaf in layers if leaf.kind == "full") == per_token
    kept = sum(leaf.state_bytes + leaf.row_bytes * (leaf.window or 0) for leaf in layers)
    digits = len(str(constant).rpartition(".")[2]) if isinstance(constant, float) else 0
    assert round(kept / 1e6, digits) == constant


def test_every_expert_counts_not_the_active_ones(tmp_path: Path) -> None:
    # llmfit 230 sized a mixture by the parameters that one token passes.
    shape = read_shape(publish(tmp_path / "model", "qwen3.5-35b"))
    assert shape.quantized_elements > 34e9


@pytest.mark.parametrize(("tied", "kept"), [(True, False), (None, False), (False, True)])
def test_a_stored_head_counts_only_where_it_is_not_tied(tied: bool | None, kept: bool, tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings" or tied is not None}
    config = config | ({} if tied is None else {"tie_word_embeddings": tied})
    head = {"lm_head.weight": ("BF16", [100, 64])}
    shape = read_shape(write_checkpoint(tmp_path / "model", config, tensors() | head))
    assert (shape.weights_bytes - size(tensors()), shape.dropped_bytes) == ((12_800, 0) if kept else (0, 12_800))


def test_gemma3_ties_by_the_tensor_and_not_by_the_key(tmp_path: Path) -> None:
    inner = base("gemma3_text", 2, num_key_value_heads=2, head_dim=16, sliding_window=64, tie_word_embeddings=True)
    named = {f"language_model.{name}": tensor for name, tensor in tensors().items()}
    head = {"language_model.lm_head.weight": ("BF16", [100, 64])}
    bare = read_shape(write_checkpoint(tmp_path / "tied", text("gemma3", inner), named))
    headed = read_shape(write_checkpoint(tmp_path / "untied", text("gemma3", inner), named | head))
    assert headed.weights_bytes - bare.weights_bytes == 12_800


def test_a_real_model_with_all_that_is_dropped_loads_to_the_same_bytes(tmp_path: Path) -> None:
    config = text(
        "gemma4",
        base(
            "gemma4_text",
            6,
            num_key_value_heads=2,
            head_dim=16,
            global_head_dim=32,
            sliding_window=64,
            sliding_window_pattern=3,
            num_kv_shared_layers=3,
            hidden_size_per_layer_input=0,
            use_double_wide_mlp=False,
        ),
    )
    extra = {
        "vision_tower.patch.weight": mx.zeros((64, 64)),
        "embed_vision.weight": mx.zeros((64, 64)),
        "language_model.model.layers.5.self_attn.k_proj.weight": mx.zeros((64, 64)),
        "language_model.model.layers.5.self_attn.q_proj.input_max": mx.zeros((1,)),
    }
    path = write_model(tmp_path / "model", config, float32=True, extra=extra)
    shape = read_shape(path)
    assert shape.weights_bytes == loaded_bytes(load(path))
    assert shape.dropped_bytes == 3 * 64 * 64 * 4 + 4


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (CONFIGS["deepseek-v3"], "model.layers.61.eh_proj.weight"),
        (CONFIGS["glm-4.5-air"], "model.layers.46.eh_proj.weight"),
        (CONFIGS["qwen3-next-80b"], "mtp.layers.0.mlp.gate.weight"),
        (CONFIGS["qwen3.5-35b"], "mtp.fc.weight"),
        (CONFIGS["llama-3.1-8b"], "model.layers.3.self_attn.rotary_emb.inv_freq"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_next_token_predictors_and_frequencies_are_dropped(config: dict, name: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", config, {**NORM, name: ("BF16", [8, 8])})
    assert read_shape(path).dropped_bytes == 128


def test_other_files_in_the_folder_do_not_count(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors())
    for name in ("consolidated.safetensors", "adapters.safetensors", "weights.00.safetensors"):
        write_shard(path / name, tensors())
    (path / "original").mkdir()
    write_shard(path / "original/model.safetensors", tensors())
    assert read_shape(path).weights_bytes == size(tensors())


def test_a_tensor_in_two_shards_counts_once(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors())
    write_shard(path / "model-copy.safetensors", tensors())
    shape = read_shape(path)
    assert (shape.weights_bytes, shape.dropped_bytes) == (size(tensors()), 0)


def test_two_shards_that_disagree_about_a_tensor_leave_its_size_unknown(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors())
    write_shard(path / "model-old.safetensors", tensors("F32"))
    with pytest.raises(FootprintUnknown, match=r"model-old\.safetensors and model\.safetensors have different"):
        read_shape(path)


@pytest.mark.parametrize(
    ("stray", "reason"),
    [("model.layers.7.mlp.up_proj.weight", "layer 7 of 2"), ("model.extra.weight", "is not in the index")],
)
def test_a_stray_shard_is_named_because_mlx_lm_would_not_load_it(stray: str, reason: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors(), shards=2)
    write_shard(path / "model-old.safetensors", {stray: ("BF16", [8])})
    with pytest.raises(ModelDirectoryError, match=rf"model-old\.safetensors is a stray.*{reason}"):
        read_shape(path)


def test_a_stale_total_in_the_index_is_not_believed(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors(), shards=2)
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}} | json.loads(index.read_text())))
    assert read_shape(path).weights_bytes == size(tensors())


def break_missing_shard(path: Path) -> None:
    (path / "model-00002-of-00002.safetensors").unlink()


def break_dangling_link(path: Path) -> None:
    shard = path / "model-00002-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to(path / "gone")


def break_lfs_pointer(path: Path) -> None:
    (path / "model-00002-of-00002.safetensors").write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")


def break_truncated(path: Path) -> None:
    shard = path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])


def break_adapters_only(path: Path) -> None:
    for file in path.glob("model*"):
        file.unlink()
    write_shard(path / "adapters.safetensors", NORM)


def break_other_name(path: Path) -> None:
    for file in path.glob("model*"):
        file.unlink()
    write_shard(path / "weights.00.safetensors", NORM)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_missing_shard, r"lacks model-00002-of-00002\.safetensors"),
        (break_dangling_link, "link to nothing"),
        (break_lfs_pointer, "Git LFS pointer"),
        (break_truncated, "cut off"),
        (break_adapters_only, "adapters alone"),
        (break_other_name, r"holds weights\.00\.safetensors"),
    ],
)
def test_a_broken_directory_is_an_error_with_its_file(damage, message: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors(), shards=2)
    damage(path)
    with pytest.raises(ModelDirectoryError, match=message):
        read_shape(path)


def test_links_are_followed(tmp_path: Path) -> None:
    real = write_checkpoint(tmp_path / "blobs", LLAMA, tensors())
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for file in real.iterdir():
        (linked / file.name).symlink_to(file)
    assert read_shape(linked) == read_shape(real)


@pytest.mark.parametrize("dtype", ["F64", "F8_E5M2"])
def test_a_type_that_mlx_cannot_load_is_an_error(dtype: str, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, {**NORM, "model.odd.weight": (dtype, [8])})
    with pytest.raises(ModelDirectoryError, match=rf"model\.odd\.weight as {dtype}, which MLX cannot load"):
        read_shape(path)


def test_float32_tensors_are_float32_whatever_the_configuration_says(tmp_path: Path) -> None:
    labelled = LLAMA | {"torch_dtype": "bfloat16"}
    wide = read_shape(write_checkpoint(tmp_path / "wide", labelled, tensors("F32")))
    narrow = read_shape(write_checkpoint(tmp_path / "narrow", labelled, tensors()))
    assert (wide.element_bytes, narrow.element_bytes) == (4, 2)
    assert wide.weights_bytes == 2 * narrow.weights_bytes
    assert wide.layers[0].row_bytes == 2 * narrow.layers[0].row_bytes


def test_half_types_in_turns_are_told_and_counted_wide(tmp_path: Path) -> None:
    shape = read_shape(write_checkpoint(tmp_path / "model", LLAMA, tensors() | {"model.norm.weight": ("F16", [64])}))
    assert shape.element_bytes == 4
    assert "BF16 and F16 in turns" in shape.notes[-1]


def test_wider_side_tensors_do_not_widen_the_activations(tmp_path: Path) -> None:
    side = {
        "model.layers.0.linear_attn.A_log": ("F32", [8]),
        "model.layers.0.mlp.gate.e_score_correction_bias": ("F32", [8]),
    }
    assert read_shape(write_checkpoint(tmp_path / "model", LLAMA, tensors() | side)).element_bytes == 2


def test_bits_come_from_the_tensors_when_the_configuration_is_wrong(tmp_path: Path) -> None:
    named = tensors() | linear("model.layers.0.mlp.up_proj", 128, 64)
    wrong = LLAMA | {"quantization": {"group_size": 64, "bits": 8}}
    right = read_shape(write_checkpoint(tmp_path / "right", LLAMA | QUANTIZED, named))
    assert read_shape(write_checkpoint(tmp_path / "wrong", wrong, named)).weights_bytes == right.weights_bytes


def test_packed_tensors_without_a_quantization_would_not_load(tmp_path: Path) -> None:
    named = tensors() | linear("model.layers.0.mlp.up_proj", 128, 64)
    with pytest.raises(ModelDirectoryError, match="no quantization"):
        read_shape(write_checkpoint(tmp_path / "model", LLAMA, named))


def test_a_quantization_config_without_its_method_would_not_load(tmp_path: Path) -> None:
    config = LLAMA | {"quantization_config": {"group_size": 64, "bits": 4}}
    with pytest.raises(ModelDirectoryError, match="quant_method"):
        read_shape(write_checkpoint(tmp_path / "model", config, tensors()))
    assert read_shape(write_checkpoint(tmp_path / "model", config | QUANTIZED, tensors())).weights_bytes


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"model_type": "deepseek_v41"}, "model_type 'deepseek_v41'"),
        ({"model_type": "rwkv7", "num_attention_heads": None}, "model_type 'rwkv7'"),
        ({"model_type": "a-model-of-tomorrow"}, "model_type 'a-model-of-tomorrow'"),
        ({"model_file": "mine.py"}, "its own model_file"),
        ({"num_attention_heads": None}, "does not say num_attention_heads"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq' weights"),
        ({"text_config": {"quantization_config": {"quant_method": "gptq"}}}, "'gptq' weights"),
        ({"layer_types": ["full_attention", "mystery"]}, "'mystery'"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_what_is_not_known_is_said_and_not_guessed(change: dict, missing: str, tmp_path: Path) -> None:
    with pytest.raises(FootprintUnknown, match=re.escape(missing)) as raised:
        read_shape(write_checkpoint(tmp_path / "model", LLAMA | change, tensors()))
    assert missing in raised.value.missing


def test_fp8_and_awq_tensors_are_unknown_because_they_are_unpacked_while_loading(tmp_path: Path) -> None:
    named = {**tensors(), "model.layers.0.mlp.up_proj.weight_scale_inv": ("F32", [1, 1])}
    with pytest.raises(FootprintUnknown, match="repacked"):
        read_shape(write_checkpoint(tmp_path / "model", LLAMA, named))


def test_modelopt_weights_are_read_of_in_their_own_file_and_unknown(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", LLAMA, tensors())
    (path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    with pytest.raises(FootprintUnknown, match="ModelOpt"):
        read_shape(path)


def test_tagged_floats_do_not_stop_the_reader(tmp_path: Path) -> None:
    config = LLAMA | {"time_step_limit": [0.0, {"__float__": "Infinity"}], "rope_scaling": {"factor": float("inf")}}
    assert read_shape(write_checkpoint(tmp_path / "model", config, tensors())).weights_bytes == size(tensors())


def test_a_hundred_shards_are_read_without_mlx(tmp_path: Path) -> None:
    named = {
        f"model.layers.{layer}.mlp.part{part}.weight": ("BF16", [1000, 1000])
        for layer in range(2)
        for part in range(500)
    }
    path = write_checkpoint(tmp_path / "model", LLAMA, named, shards=100)
    code = (
        "import sys; from pathlib import Path; from kakeya_ops.memory.model_shape import read_shape;"
        "print(read_shape(Path(sys.argv[1])).weights_bytes, 'mlx' in sys.modules, 'mlx.core' in sys.modules)"
    )
    begun = time.monotonic()
    done = run_process([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["2000000000", "False", "False"]
    assert time.monotonic() - begun < 30
