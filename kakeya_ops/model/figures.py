"""The figures of ``config.json``, looked at before anything is computed from them or built to their size.

Only what no model can have is refused: a family's own rules are the business of whoever knows the family.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kakeya_ops.errors import ModelDirectoryError

_ENDLESS_LAYERS = 1024
"""More than any known model has by far. A lesser number that the weights do not bear out is told by who loads them."""
_MOST = 2**31 - 1
_LAYERS = "num_hidden_layers"
_COUNTS = ("hidden_size", _LAYERS, "vocab_size", "num_attention_heads")
"""Which are not 0 in any model. Lists, with a figure for each layer, and null are left to whoever reads them."""
_OTHER_COUNTS = ("num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings", "sliding_window")
_MEASURES = ("rope_theta", "rope_local_base_freq", "rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon")
"""Which are positive numbers."""
_SECTIONS = ("text_config", "rope_parameters", "rope_scaling")
_NUMBERED = re.compile(r"(?:^|\.)(\d{1,9})(?:\.|$)")


def check_figures(file: Path, config: Mapping[str, Any], tensors: Iterable[str]) -> None:
    """Raise `ModelDirectoryError`, naming `file` and the key, for a figure that no model can have.

    `tensors` are the names of the model's tensors: what is numbered in them bounds how many layers there can be.
    Figures that are not numbers are given as `kakeya_ops.model.files.read_json_object` gives them.
    """
    held = _numbered(tensors)
    for path, key, value in _figures(config, ""):
        if fault := _fault(key, value) or (_too_deep(value, held) if key == _LAYERS else None):
            shown = value["__float__"] if _is_no_number(value) else repr(value)
            raise ModelDirectoryError(f"{file}: {path} is {shown:.60}{fault}")


def _figures(section: Mapping[str, Any], above: str) -> Iterator[tuple[str, str, Any]]:
    """The keys of a section and of those within it that say how text is computed, with their paths."""
    for key, value in section.items():
        if key in _SECTIONS and isinstance(value, dict) and not _is_no_number(value):
            yield from _figures(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", key, value


def _fault(key: str, value: Any) -> str | None:
    """What is wrong with a single figure; None where it is not one that is known here, or is fine."""
    if _is_no_number(value) and value["__float__"] == "NaN":
        return ", which is not a number"
    if value is None or isinstance(value, list):
        return None
    if key in _COUNTS or key in _OTHER_COUNTS:
        least = 1 if key in _COUNTS else 0
        return None if _is_count(value, least) else f", not a whole number from {least} to {_MOST}"
    if key in _MEASURES:
        return None if _is_measure(value) else ", not a positive number"
    return None


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _is_measure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_no_number(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("__float__"), str)


def _too_deep(layers: Any, held: int) -> str | None:
    """Layers that have no weights: building a great many may take for ever, and ends in an error if it does not."""
    if not isinstance(layers, int) or layers <= max(held, _ENDLESS_LAYERS):
        return None
    return f", but the weights hold {held} {'layer' if held == 1 else 'layers'}"


def _numbered(tensors: Iterable[str]) -> int:
    """How many layers there are at most by the numbers in names such as ``model.layers.7.mlp``.

    Experts and blocks of a vision tower count too: which numbers are those of layers is a family's own rule.
    """
    return max((int(number) + 1 for name in tensors for number in _NUMBERED.findall(name)), default=0)


__all__ = ["check_figures"]
