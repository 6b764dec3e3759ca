"""Tiny random MLX models with a real tokenizer, made on the spot: no download, well under a second.

Weights are drawn into mlx-lm's own model classes, so their names and shapes are what `mlx_lm.load` expects. The
tokenizer is byte-level: one token per UTF-8 byte. Naive random weights repeat the last token for ever, whatever the
cache holds, and a broken hand-over of KV would pass unnoticed; these are drawn so that every prompt token moves the
output: an output head of its own, small embeddings, large attention and MLP outputs. Greedy text is printable ASCII
and never ends by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PAD, END_OF_TEXT, TURN, END_OF_TURN = SPECIALS = ("<|pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")

CHAT_TEMPLATE = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""

CALL_NOW = "<|call_now|>"
TOOL_REPLY = (
    CALL_NOW,
    "<tool_call>",
    '{"name": "get_weather", ',
    '"arguments": {"city": "Paris"}}',
    "</tool_call>",
    END_OF_TURN,
)
"""What a model with tools says: each token is followed by the next, whatever else is in the prompt."""

TOOL_CHAT_TEMPLATE = """\
{%- if tools -%}
{{ '<|im_start|>system\nTools, called as <tool_call>{"name": ..., "arguments": ...}</tool_call>:\n' }}
{%- for tool in tools -%}{{ tool | tojson + '\n' }}{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- endif -%}
{%- for m in messages -%}
{{ '<|im_start|>' + m['role'] + '\n' + (m['content'] or '') }}
{%- for call in m['tool_calls'] or [] -%}
{%- set tool_call = call['function'] or call -%}
{{ '<tool_call>{"name": ' + tool_call.name | tojson + ', "arguments": ' }}
{{- tool_call.arguments if tool_call.arguments is string else tool_call.arguments | tojson }}
{{- '}</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- if tools and messages[-1]['role'] != 'tool' -%}{{ '<|call_now|>' }}{%- endif -%}
{%- endif -%}
"""
"""Asks for a call when tools are offered and the last message is not already a tool's answer."""

_EMBEDDINGS = ("embed_tokens", "embeddings")

Draw = Callable[[str, tuple[int, ...], mx.array], mx.array]
"""``(parameter name, shape, random key)`` to the parameter's values."""


@dataclass(frozen=True)
class TinySizes:
    """How large a tiny model is; the defaults make 0.1 million parameters for llama."""

    layers: int = 2
    hidden: int = 64
    intermediate: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 16
    context_tokens: int = 8192


def make_tiny_llama(
    out: Path, *, seed: int = 0, sizes: TinySizes = TinySizes(), ascii_only: bool = True, tools: bool = False
) -> Path:
    """Write a llama model directory to `out` and return it. The same arguments give the same bytes.

    With `ascii_only` off it may say any byte, so that incomplete UTF-8 occurs. With `tools` its chat template takes
    tools in the form that mlx-lm's ``json_tools`` parser reads, and whenever tools are offered it calls
    ``get_weather(city="Paris")`` (see `TOOL_REPLY`).
    """
    script = TOOL_REPLY if tools else ()
    symbols = write_byte_tokenizer(out, sizes.context_tokens, script=script)
    config = base_config("llama", "LlamaForCausalLM", sizes, len(symbols)) | {"rope_theta": 10000.0}
    head = HeadRows(symbols, ascii_only=ascii_only, script=script)
    write_model(out, config, Recipe(head), seed=seed)
    return out


def base_config(model_type: str, architecture: str, sizes: TinySizes, vocabulary: int) -> dict[str, Any]:
    """The fields of ``config.json`` that all families share."""
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "intermediate_size": sizes.intermediate,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_width,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocabulary,
        "max_position_embeddings": sizes.context_tokens,
        "bos_token_id": SPECIALS.index(TURN),
        "eos_token_id": SPECIALS.index(END_OF_TURN),
        "tie_word_embeddings": False,
    }


def write_byte_tokenizer(out: Path, context_tokens: int, *, script: Sequence[str] = ()) -> list[str]:
    """Write the byte-level tokenizer's files into `out`; its symbols in the order of their ids.

    Ids 0 to 3 are `SPECIALS`, 4 to 259 the bytes, then the tokens of `script` (with which the template takes tools).
    """
    out.mkdir(parents=True, exist_ok=True)
    scripted = [token for token in script if token not in SPECIALS]
    symbols = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *scripted]
    tokenizer = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(symbols)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIALS])
    tokenizer.add_tokens([AddedToken(s, normalized=False, special=False) for s in scripted])
    # The tokenizer's own way to save raises no `OSError`, and MLX's no reason, where the disk is full.
    (out / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": TURN,
        "eos_token": END_OF_TURN,
        "pad_token": PAD,
        "unk_token": END_OF_TEXT,
        "model_max_length": context_tokens,
        "clean_up_tokenization_spaces": False,
        "chat_template": TOOL_CHAT_TEMPLATE if script else CHAT_TEMPLATE,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return symbols


@dataclass(frozen=True)
class HeadRows:
    """Which tokens the output head may choose.

    Rows of all others are zero: beside the random rows a zero is never the largest logit. Each token of `script` has
    a hidden dimension of its own, one of the last, to which no layer writes; its successor's row looks only there.
    """

    symbols: Sequence[str]
    ascii_only: bool = True
    script: Sequence[str] = ()

    def may_be_chosen(self, symbol: str) -> bool:
        """Whether ordinary text may contain `symbol`."""
        if symbol in SPECIALS or symbol in self.script:
            return False
        return not self.ascii_only or symbol == "Ġ" or "!" <= symbol <= "~"

    def draw(self, shape: tuple[int, ...], key: mx.array) -> mx.array:
        """Random rows for the tokens that may be chosen; rows beyond the tokenizer's vocabulary are zero too."""
        chosen = [float(self.may_be_chosen(symbol)) for symbol in self.symbols]
        mask = mx.array(chosen + [0.0] * (shape[0] - len(chosen)))[:, None]
        rows: mx.array = mx.random.normal(shape, key=key) * mask * self._unscripted(shape[1])
        rows = 3 * shape[1] ** -0.5 * rows
        for index, token in enumerate(self.script[1:]):
            rows[self.symbols.index(token), shape[1] - 1 - index] = 4.0
        return rows

    def mark_embeddings(self, rows: mx.array) -> mx.array:
        """`rows` with each script token also in its own dimension, large against all that the layers add."""
        rows = rows * self._unscripted(rows.shape[1])
        for index, token in enumerate(self.script[:-1]):
            rows[self.symbols.index(token), rows.shape[1] - 1 - index] = 50.0
        return rows

    def silence_outputs(self, matrix: mx.array) -> mx.array:
        """`matrix`, which writes to the hidden state, without the dimensions of the script."""
        return matrix * self._unscripted(matrix.shape[-2])[:, None]

    def _unscripted(self, hidden: int) -> mx.array:
        return (mx.arange(hidden) < hidden - max(len(self.script) - 1, 0)).astype(mx.float32)


@dataclass(frozen=True)
class Recipe:
    """How each kind of weight is drawn. `own` overrides it by a parameter's last name, such as ``A_log``."""

    head: HeadRows
    norm: float = 1.0
    embedding: float = 0.3
    gain: float = 2.0
    own: Mapping[str, Draw] | None = None

    def draw(self, name: str, shape: tuple[int, ...], key: mx.array) -> mx.array:
        """Values of one parameter."""
        last = name.removesuffix(".weight").rpartition(".")[2]
        if self.own and last in self.own:
            return self.own[last](name, shape, key)
        if last == "lm_head":
            return self.head.draw(shape, key)
        normal = mx.random.normal(shape, key=key)
        if "norm" in last:
            return self.norm + 0.02 * normal
        if last in _EMBEDDINGS:
            return self.head.mark_embeddings(self.embedding * normal)
        drawn = self.gain * shape[-1] ** -0.5 * normal
        return self.head.silence_outputs(drawn) if last in ("o_proj", "down_proj") else drawn


def write_model(out: Path, config: Mapping[str, Any], recipe: Recipe, *, seed: int) -> None:
    """Write ``config.json`` and float32 ``model.safetensors`` into `out`."""
    family = import_module(f"mlx_lm.models.{config['model_type']}")
    model = family.Model(family.ModelArgs.from_dict(dict(config)))
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    shapes = {name: tuple(parameters[name].shape) for name in sorted(parameters)}
    keys = mx.random.split(mx.random.key(seed), len(shapes))
    weights = {
        name: recipe.draw(name, shape, key).astype(mx.float32)
        for (name, shape), key in zip(shapes.items(), keys, strict=True)
    }
    mx.eval(weights)
    with (out / "model.safetensors").open("wb") as file:
        mx.save_safetensors(file, weights, metadata={"format": "mlx"})
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


__all__ = [
    "CALL_NOW",
    "CHAT_TEMPLATE",
    "SPECIALS",
    "TOOL_CHAT_TEMPLATE",
    "TOOL_REPLY",
    "Draw",
    "HeadRows",
    "Recipe",
    "TinySizes",
    "base_config",
    "make_tiny_llama",
    "write_byte_tokenizer",
    "write_model",
]
