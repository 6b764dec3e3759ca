"""Turns a llama GGUF file into an MLX model directory, offline, keeping its own quantized blocks.

MLX reads GGUF tensors of the kinds F32, F16, Q4_0, Q4_1 and Q8_0, the quantized ones as its own affine quantization in
groups of 32: nothing is quantized twice. Two things differ from what mlx-lm expects. llama.cpp stores the rows of the
query and key projections in the order of interleaved rotary pairs, which is undone here; and the tokenizer's rule for
splitting text is only named in the file, not written out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from kakeya_ops.errors import InputError

_GROUP = 32
_USUAL_BITS = 4
_CONTROL_TOKEN = 3
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}


@dataclass(frozen=True)
class GgufFields:
    """The metadata of a GGUF file as plain Python values."""

    values: dict[str, Any]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`; arrays of one number become that number."""
        value = self.values.get(key, default)
        return value.tolist() if isinstance(value, mx.array) else value

    def need(self, key: str) -> Any:
        """The value of `key`. Raises `InputError` if the file has none."""
        value = self.get(key)
        if value is None:
            raise InputError(f"the GGUF file has no field {key}")
        return value

    def token(self, name: str) -> str | None:
        """The special token called `name` (``bos``, ``eos``, ``padding``, ``unknown``), if the file names one."""
        index = self.get(f"tokenizer.ggml.{name}_token_id")
        return None if index is None else str(self.need("tokenizer.ggml.tokens")[index])


def convert_llama_gguf(source: Path, out: Path) -> None:
    """Write the model in `source` to the existing directory `out`, with float32 scales and norms.

    Scales stay float32 because MLX's quantized matrix product on a CPU is ten times slower with 16-bit ones. Raises
    `InputError` if `source` is not a llama GGUF file of the tensor kinds that MLX reads, `OSError` if `out` cannot be
    written.
    """
    try:
        loaded: Any = mx.load(str(source), format="gguf", return_metadata=True)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{source} is not a GGUF file that MLX can read: {error}") from error
    raw, fields = loaded[0], GgufFields(loaded[1])
    architecture = fields.need("general.architecture")
    if architecture != "llama":
        raise InputError(f"{source} holds a model of the family {architecture}; only llama can be converted")
    weights = llama_weights(raw, fields)
    tokenizer = llama_tokenizer(fields)
    config = llama_config(fields, weights)
    # Through files of Python's own, whose errors have a reason.
    with (out / "model.safetensors").open("wb") as file:
        mx.save_safetensors(file, weights, metadata={"format": "mlx"})
    (out / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    _write_json(out / "config.json", config)
    _write_json(out / "tokenizer_config.json", tokenizer_settings(fields))


def llama_weights(raw: dict[str, mx.array], fields: GgufFields) -> dict[str, mx.array]:
    """The tensors of `raw` under mlx-lm's names, rows in its order, evaluated."""
    heads = fields.need("llama.attention.head_count")
    rows_of = {"attn_q": heads, "attn_k": fields.get("llama.attention.head_count_kv", heads)}
    weights = {}
    for name, tensor in raw.items():
        stem, _, leaf = name.rpartition(".")
        kind = stem.rpartition(".")[2]
        if kind in rows_of:
            tensor = uninterleave(tensor, rows_of[kind])
        weights[f"{_renamed(stem)}.{leaf}"] = tensor if tensor.dtype == mx.uint32 else tensor.astype(mx.float32)
    mx.eval(weights)
    return weights


def uninterleave(rows: mx.array, heads: int) -> mx.array:
    """`rows` of a projection with `heads` heads, from pairs side by side to first halves before second halves."""
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def _renamed(stem: str) -> str:
    try:
        if stem.startswith("blk."):
            _, layer, kind = stem.split(".", 2)
            return f"model.layers.{layer}.{_LAYER[kind]}"
        return _TOP[stem]
    except (KeyError, ValueError):
        raise InputError(f"the GGUF file has a tensor {stem}, which a llama model has not") from None


def llama_config(fields: GgufFields, weights: dict[str, mx.array]) -> dict[str, Any]:
    """What mlx-lm reads from ``config.json``."""
    hidden, heads = fields.need("llama.embedding_length"), fields.need("llama.attention.head_count")
    quantization = quantization_of(weights)
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": fields.need("llama.block_count"),
        "intermediate_size": fields.need("llama.feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "head_dim": fields.get("llama.attention.key_length", hidden // heads),
        "hidden_act": "silu",
        # Stored in single precision; the digits beyond it are noise.
        "rms_norm_eps": round(fields.need("llama.attention.layer_norm_rms_epsilon"), 12),
        "rope_theta": fields.get("llama.rope.freq_base", 10000.0),
        "max_position_embeddings": fields.need("llama.context_length"),
        "vocab_size": len(fields.need("tokenizer.ggml.tokens")),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "bos_token_id": fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": fields.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
    } | ({"quantization": quantization, "quantization_config": quantization} if quantization else {})


def quantization_of(weights: dict[str, mx.array]) -> dict[str, Any] | None:
    """mlx-lm's description of the quantized tensors: usual width, and who differs. None if none is quantized."""
    scaled = [name.removesuffix(".scales") for name in weights if name.endswith(".scales")]
    if not scaled:
        return None
    usual = {"group_size": _GROUP, "bits": _USUAL_BITS, "mode": "affine"}
    bits = {name: weights[f"{name}.weight"].shape[-1] // weights[f"{name}.scales"].shape[-1] for name in scaled}
    # One group of 32 values of b bits fills b words of 32 bits.
    return usual | {name: usual | {"bits": width} for name, width in bits.items() if width != _USUAL_BITS}


def llama_tokenizer(fields: GgufFields) -> Tokenizer:
    """The file's byte-level BPE tokenizer. Raises `InputError` for another kind, or an unknown rule for splitting."""
    if (model := fields.need("tokenizer.ggml.model")) != "gpt2":
        raise InputError(f"the GGUF file has a tokenizer of the kind {model}; only gpt2 can be converted")
    tokens: list[str] = fields.need("tokenizer.ggml.tokens")
    left_right = [merge.split(" ", 1) for merge in fields.need("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in left_right]))
    tokenizer.pre_tokenizer = _splitting(fields.get("tokenizer.ggml.pre", "default"))
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fields.need("tokenizer.ggml.token_type")
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    first = fields.token("bos")
    if first and fields.get("tokenizer.ggml.add_bos_token", False):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, vocabulary[first])]
        )
    return tokenizer


def _splitting(rule: str) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if rule == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    if rule in ("gpt-2", "default"):
        return byte_level
    raise InputError(f"the GGUF file splits text by the rule {rule}, which is not known here")


def tokenizer_settings(fields: GgufFields) -> dict[str, Any]:
    """What transformers reads from ``tokenizer_config.json``."""
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": fields.token("bos"),
        "eos_token": fields.token("eos"),
        "pad_token": fields.token("padding"),
        "unk_token": fields.token("unknown"),
        "model_max_length": fields.need("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(fields.get("tokenizer.ggml.add_bos_token", False)),
        "chat_template": fields.get("tokenizer.chat_template"),
    }
    return {name: value for name, value in settings.items() if value is not None}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


__all__ = [
    "GgufFields",
    "convert_llama_gguf",
    "llama_config",
    "llama_tokenizer",
    "llama_weights",
    "quantization_of",
    "tokenizer_settings",
    "uninterleave",
]
