from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from kakeya_ops.demo.gguf import (
    GgufFields,
    convert_llama_gguf,
    llama_config,
    llama_tokenizer,
    quantization_of,
    tokenizer_settings,
    uninterleave,
)
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.errors import InputError

HEADS, KV_HEADS = 4, 2
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
SYMBOLS = ["<|end|>", "<|start|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġt", "he"]


def metadata(**changes: Any) -> dict[str, Any]:
    """The fields of a small llama model as llama.cpp writes them."""
    fields = {
        "general.architecture": "llama",
        "llama.embedding_length": mx.array(64, mx.uint32),
        "llama.block_count": mx.array(2, mx.uint32),
        "llama.feed_forward_length": mx.array(128, mx.uint32),
        "llama.attention.head_count": mx.array(HEADS, mx.uint32),
        "llama.attention.head_count_kv": mx.array(KV_HEADS, mx.uint32),
        "llama.attention.layer_norm_rms_epsilon": mx.array(1e-6),
        "llama.rope.freq_base": mx.array(10000.0),
        "llama.context_length": mx.array(8192, mx.uint32),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": SYMBOLS,
        "tokenizer.ggml.merges": ["Ġ t", "h e"],
        "tokenizer.ggml.token_type": mx.array([3, 3] + [1] * (len(SYMBOLS) - 2), mx.int32),
        "tokenizer.ggml.bos_token_id": mx.array(1, mx.uint32),
        "tokenizer.ggml.eos_token_id": mx.array(0, mx.uint32),
        "tokenizer.chat_template": "{{ messages }}",
    }
    return fields | {name.replace("__", "."): value for name, value in changes.items()}


def interleave(rows: mx.array, heads: int) -> mx.array:
    """The opposite of `uninterleave`, as llama.cpp's own converter does it."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def renamed(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, layer, kind = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[kind]}.weight"
    return f"{NAMES[stem]}.weight"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> dict[str, mx.array]:
    """The weights of a tiny llama."""
    loaded = mx.load(str(make_tiny_llama(tmp_path_factory.mktemp("tiny")) / "model.safetensors"))
    assert isinstance(loaded, dict)
    return loaded


def write_gguf(path: Path, weights: dict[str, mx.array], fields: dict[str, Any]) -> Path:
    raw = {}
    for name, tensor in weights.items():
        heads = HEADS if "q_proj" in name else KV_HEADS if "k_proj" in name else None
        raw[renamed(name)] = interleave(tensor, heads) if heads else tensor
    mx.save_gguf(str(path), raw, fields)
    return path


def test_a_model_survives_the_way_through_gguf(original: dict[str, mx.array], tmp_path: Path) -> None:
    convert_llama_gguf(write_gguf(tmp_path / "m.gguf", original, metadata()), tmp_path)
    converted = mx.load(str(tmp_path / "model.safetensors"))
    assert isinstance(converted, dict)
    assert set(converted) == set(original)
    assert [name for name in original if not mx.array_equal(converted[name], original[name])] == []


def test_the_converted_directory_is_one_that_mlx_lm_loads(original: dict[str, mx.array], tmp_path: Path) -> None:
    from mlx_lm import load

    convert_llama_gguf(write_gguf(tmp_path / "m.gguf", original, metadata()), tmp_path)
    model, tokenizer = load(str(tmp_path))[:2]
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["rms_norm_eps"], config["head_dim"], config["tie_word_embeddings"]) == (1e-6, 16, False)
    assert "quantization" not in config
    ids = tokenizer.encode("the 12 té")
    assert tokenizer.decode(ids) == "the 12 té"
    assert model(mx.array([ids])).shape == (1, len(ids), 260)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"general__architecture": "gemma3"}, "family gemma3"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer of the kind llama"),
        ({"tokenizer__ggml__pre": "qwen2"}, "rule qwen2"),
    ],
)
def test_what_cannot_be_converted_is_named(
    original: dict[str, mx.array], tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    source = write_gguf(tmp_path / "m.gguf", original, metadata(**changes))
    with pytest.raises(InputError, match=reason):
        convert_llama_gguf(source, tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_a_missing_field_is_named(original: dict[str, mx.array], tmp_path: Path) -> None:
    fields = metadata()
    del fields["llama.block_count"]
    with pytest.raises(InputError, match=r"no field llama\.block_count"):
        convert_llama_gguf(write_gguf(tmp_path / "m.gguf", original, fields), tmp_path)


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    mx.save_gguf(str(tmp_path / "m.gguf"), {"blk.0.ffn_gate_exps.weight": mx.zeros((64, 64))}, metadata())
    with pytest.raises(InputError, match="ffn_gate_exps"):
        convert_llama_gguf(tmp_path / "m.gguf", tmp_path)


@pytest.mark.parametrize("content", [b"", b"no gguf at all", b"GGUF"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError):
        convert_llama_gguf(path, tmp_path)
    with pytest.raises(InputError):
        convert_llama_gguf(tmp_path / "absent.gguf", tmp_path)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_rows_come_back_in_their_order(heads: int, pairs: int, width: int) -> None:
    rows = mx.arange(heads * pairs * 2 * width).reshape(heads * pairs * 2, width)
    assert mx.array_equal(uninterleave(interleave(rows, heads), heads), rows)


def test_each_tensors_own_width_is_written_down() -> None:
    weights = {"plain.weight": mx.zeros((32, 32))}
    for name, bits in (("usual", 4), ("wide", 8)):
        parts = mx.quantize(mx.zeros((32, 64)), group_size=32, bits=bits)
        weights |= {f"{name}.{leaf}": part for leaf, part in zip(("weight", "scales", "biases"), parts, strict=True)}
    assert quantization_of(weights) == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "wide": {"group_size": 32, "bits": 8, "mode": "affine"},
    }
    config = llama_config(GgufFields(metadata()), weights)
    assert config["quantization"] == config["quantization_config"]


def encode(tokenizer: Tokenizer, text: str) -> list[str]:
    return list(tokenizer.encode(text).tokens)


def test_text_is_split_as_the_file_says() -> None:
    smollm = llama_tokenizer(GgufFields(metadata()))
    usual = llama_tokenizer(GgufFields(metadata(tokenizer__ggml__pre="default")))
    assert encode(smollm, "he the 12<|end|>") == ["he", "Ġt", "he", "Ġ", "1", "2", "<|end|>"]
    assert encode(usual, "he the") == ["he", "Ġt", "he"]


def test_a_first_token_is_added_where_the_file_says_so() -> None:
    tokenizer = llama_tokenizer(GgufFields(metadata(tokenizer__ggml__add_bos_token=mx.array(True))))
    assert encode(tokenizer, "he") == ["<|start|>", "he"]


def test_the_tokenizers_settings_name_its_special_tokens() -> None:
    settings = tokenizer_settings(GgufFields(metadata()))
    assert (settings["bos_token"], settings["eos_token"]) == ("<|start|>", "<|end|>")
    assert "pad_token" not in settings
    assert settings["chat_template"] == "{{ messages }}"
