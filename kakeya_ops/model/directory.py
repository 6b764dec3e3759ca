"""A model directory: its configuration, its shards and its tokenizer's files, checked to be whole.

What of ``config.json`` KV depends on is never guessed. Each key is in exactly one of `ModelDirectory.quantization`,
`ModelDirectory.rope` and `ModelDirectory.geometry`, and the last takes all that nobody knows: a key too many makes two
sides differ that need not, and says so by name; a key too few would let KV of one model pass as another's. Left out
are only notes on where the file came from, and a quantization entry that repeats the one in force.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.model.figures import check_figures
from kakeya_ops.model.files import check_safetensors, read_json_object

_SHARDS = "model*.safetensors"
"""The files that mlx-lm loads, all of them and no others."""
_INDEX = "model.safetensors.index.json"
_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer*.json",
    "*.model",
    "tokenizer.model.*",
    "tokenization*.py",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
)
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja")
_CONFIG_FILES = ("config.json", "hf_quant_config.json", _INDEX)
_ORIGIN_KEYS = frozenset({"_commit_hash", "_name_or_path", "transformers_version"})
_QUANTIZATION_KEYS = ("quantization", "quantization_config")


@dataclass(frozen=True)
class ModelDirectory:
    """A whole, readable MLX model directory. `config` is ``config.json`` as it stands; do not change it.

    `shards`, `tokenizer_files` and `template_files` are sorted by name. `modelopt` is ``hf_quant_config.json``, from
    which mlx-lm takes the quantization when ``config.json`` has none.
    """

    path: Path
    config: dict[str, Any]
    shards: tuple[Path, ...]
    tokenizer_files: tuple[Path, ...]
    template_files: tuple[Path, ...]
    modelopt: dict[str, Any] | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """The model directory at `path`.

        Raises `ModelDirectoryError`, naming the file and what is wrong with it: a ``config.json`` that is missing,
        broken, or has a figure that no model can have; no safetensors, a shard that is missing, cut off, a dangling
        link or a Git LFS pointer, adapters alone, GGUF alone.
        """
        _check_kind(path)
        config = read_json_object(path / "config.json")
        if not isinstance(config.get("model_type"), str):
            raise ModelDirectoryError(f"{path / 'config.json'} does not say its model_type")
        modelopt = path / "hf_quant_config.json"
        shards = _find_shards(path)
        check_figures(path / "config.json", config, (name for names in shards.values() for name in names))
        return cls(
            path=path,
            config=config,
            shards=tuple(shards),
            tokenizer_files=_find(path, _TOKENIZER_FILES),
            template_files=_find(path, _TEMPLATE_FILES),
            modelopt=read_json_object(modelopt) if modelopt.exists() else None,
        )

    @property
    def model_type(self) -> str:
        """The model family, such as ``llama``, as ``config.json`` names it."""
        return str(self.config["model_type"])

    def quantization(self) -> dict[str, Any] | None:
        """The quantization in force, in mlx-lm's order of preference; None for a model that is not quantized."""
        for value in self._quantizations():
            return copy.deepcopy(value)
        return None

    def rope(self) -> dict[str, Any]:
        """All keys with ``rope`` in their name, at any depth, by their dotted path."""
        return {_dotted(path): copy.deepcopy(value) for path, value in _leaves(self.config) if _is_rope(path[-1])}

    def geometry(self) -> dict[str, Any]:
        """All of ``config.json`` that is neither rope nor quantization nor a note on its origin, by dotted path."""
        in_force = self.quantization()
        return {
            _dotted(path): copy.deepcopy(value)
            for path, value in _leaves(self.config)
            if path[-1] not in _ORIGIN_KEYS
            and not _is_rope(path[-1])
            and not (path[-1] in _QUANTIZATION_KEYS and value in (in_force, None))
        }

    def context_tokens(self) -> int | None:
        """The most positions that the model was made for, or None when its configuration does not say."""
        for section in (self.config.get("text_config"), self.config):
            tokens = section.get("max_position_embeddings") if isinstance(section, dict) else None
            if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0:
                return tokens
        return None

    def _quantizations(self) -> Iterator[dict[str, Any]]:
        nested = self.config.get("text_config")
        candidates = (
            *(self.config.get(key) for key in _QUANTIZATION_KEYS),
            nested.get("quantization_config") if isinstance(nested, dict) else None,
            self.modelopt,
        )
        return (candidate for candidate in candidates if isinstance(candidate, dict) and candidate)


def is_read(name: str) -> bool:
    """Whether a file called `name`, by its path in a model directory, has a part in what the model computes."""
    patterns = (*_CONFIG_FILES, _SHARDS, *_TOKENIZER_FILES, *_TEMPLATE_FILES)
    return any(name.count("/") == pattern.count("/") and fnmatchcase(name, pattern) for pattern in patterns)


def _leaves(section: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of `section` with the keys that lead to it; rope and quantization entries are not taken apart."""
    for key, value in section.items():
        whole = _is_rope(key) or key in _QUANTIZATION_KEYS or not isinstance(value, dict) or not value
        if whole:
            yield (*above, key), value
        else:
            yield from _leaves(value, (*above, key))


def _dotted(path: tuple[str, ...]) -> str:
    """`path` as one name; keys with a dot of their own are quoted, so two paths never have one name."""
    return ".".join(json.dumps(key) if set(key) & {".", '"'} else key for key in path)


def _is_rope(key: str) -> bool:
    return "rope" in key


def _check_kind(path: Path) -> None:
    """Raise the sentence that fits what `path` is, unless it looks like a directory of safetensors."""
    if not path.exists():
        hint = "download the model to it, or name the directory that it is in: model.path in the inventory"
        raise ModelDirectoryError(f"model directory {path} does not exist", hint=hint)
    if not path.is_dir():
        what = "a GGUF file" if path.suffix == ".gguf" else "a file"
        raise ModelDirectoryError(f"{path} is {what}, not an MLX model directory")
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise ModelDirectoryError(f"model directory {path} cannot be read: {error.strerror}") from error
    if not any(fnmatchcase(name, _SHARDS) or name == _INDEX for name in names):
        raise ModelDirectoryError(f"{path} {_other_kind(names)}", hint="Kakeya serves models in MLX's safetensors form")


def _other_kind(names: list[str]) -> str:
    """What a directory without a model's safetensors holds instead."""
    if any(name.startswith("adapter") for name in names):
        return "holds adapters alone, not a whole model; fuse them into their base model first"
    if any(name.endswith(".gguf") for name in names):
        return "holds GGUF alone"
    if others := [name for name in names if name.endswith((".safetensors", ".bin", ".npz"))]:
        return f"holds {others[0]}, but no {_SHARDS}"
    return f"holds no {_SHARDS}" if "config.json" in names else "is not a model directory: it has no config.json"


def _find_shards(path: Path) -> dict[Path, tuple[str, ...]]:
    """All shards, each checked to be whole, with the names of its tensors; the index, if any, names no other."""
    shards = _find(path, (_SHARDS,))
    index = path / _INDEX
    if index.exists() or index.is_symlink():
        weight_map = read_json_object(index).get("weight_map")
        named = {str(name) for name in weight_map.values()} if isinstance(weight_map, dict) else set()
        for missing in sorted(named - {shard.name for shard in shards}) or ([] if shards else [_SHARDS]):
            raise ModelDirectoryError(f"{path} lacks {missing}, which {_INDEX} names", hint="download the rest of it")
    return {shard: check_safetensors(shard) for shard in shards}


def _find(path: Path, patterns: tuple[str, ...]) -> tuple[Path, ...]:
    return tuple(sorted({file for pattern in patterns for file in path.glob(pattern)}))


__all__ = ["ModelDirectory", "is_read"]
