"""From a model directory to its `ModelShape`, by its configuration and the headers of its shards alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kakeya_ops.errors import FootprintUnknown, ModelDirectoryError
from kakeya_ops.memory.attention import Layers, read_experts
from kakeya_ops.memory.config import Config
from kakeya_ops.memory.families import Family, family_of
from kakeya_ops.memory.headers import DTYPE_BYTES, Tensor, read_tensors
from kakeya_ops.memory.shape import ModelShape
from kakeya_ops.memory.sorting import layer_of, text_name
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.files import read_json_object

_REPACKED = ("weight_scale_inv", "_scale_inv", "weight_packed", ".qweight", ".qzeros")
"""Ends of names that only occur in checkpoints which mlx-lm unpacks while it loads them, to another size."""
_WITHOUT_METHOD = "its quantization_config has no quant_method"
_UNCHANGED_METHODS = ("mxfp4", "mxfp8")
"""Formats whose packed tensors MLX uses as they are."""
_SIDE_TENSORS = ("A_log", "dt_bias", ".D", "e_score_correction_bias", "sinks", "global_scale", ".gate.weight")
"""Ends of names whose type may be wider than that of the activations without widening them."""


def read_shape(path: Path) -> ModelShape:
    """The shape of the model in `path`.

    Reads ``config.json`` and shard headers only. Raises `ModelDirectoryError`, naming file and reason, for a directory
    that mlx-lm could not load, and `FootprintUnknown`, naming the missing fact, where a number would be a guess.
    """
    directory = ModelDirectory.open(path)
    whole = Config(directory.model_type, directory.config)
    _check_loadable(directory, whole)
    family = family_of(whole)
    text = _text_section(whole, family)
    tensors = _merge(directory, read_tensors(directory.shards))
    kept = _sort(tensors, family, text)
    _check_packing(directory, kept)
    element_bytes = _element_bytes(text, kept)
    layers = family.read(text, element_bytes)
    _check_strays(directory, kept, layers)
    return _put_together(directory, text, _Read(tensors, kept, element_bytes, layers), family)


@dataclass(frozen=True)
class _Read:
    """What was read of a directory."""

    tensors: tuple[Tensor, ...]
    kept: tuple[Tensor, ...]
    element_bytes: int
    layers: Layers


def _put_together(directory: ModelDirectory, text: Config, read: _Read, family: Family) -> ModelShape:
    weights = sum(tensor.nbytes for tensor in read.kept)
    largest = max(read.kept, key=lambda tensor: tensor.nbytes)
    elements, packed_bytes = _packed(directory, read.kept)
    return ModelShape(
        model_type=directory.model_type,
        weights_bytes=weights,
        dropped_bytes=sum(tensor.nbytes for tensor in read.tensors) - weights,
        element_bytes=read.element_bytes,
        layers=read.layers.caches,
        attention=read.layers.attention,
        experts=read_experts(text, *family.experts) if family.experts else None,
        hidden=text.optional_count("hidden_size") or 0,
        vocabulary=text.optional_count("vocab_size") or Config("", directory.config).optional_count("vocab_size"),
        context_tokens=directory.context_tokens(),
        largest_tensor_bytes=largest.nbytes,
        largest_tensor=largest.name,
        quantized_elements=elements,
        quantized_bytes=packed_bytes,
        notes=tuple(text.notes),
    )


def _text_section(whole: Config, family: Family) -> Config:
    """Where the language model is configured: nested first, and what is only outside is seen there too."""
    section = whole.section("text_config") if family.nested else None
    if section is None:
        return whole
    outside = {key: whole.values[key] for key in ("vocab_size",) if key in whole.values}
    return Config(whole.model_type, outside | dict(section.values), whole.notes)


def _check_loadable(directory: ModelDirectory, config: Config) -> None:
    """What makes mlx-lm refuse the directory before it looks at a tensor, or run code that is not its own."""
    if config.has("model_file"):
        raise config.unknown("it brings its own model_file, which Kakeya never runs")
    if config.has("quantization"):
        return
    nested = config.section("text_config")
    method = config.section("quantization_config") or (nested and nested.section("quantization_config"))
    if method is None:
        if directory.modelopt is not None:
            raise config.unknown("the size of its ModelOpt weights once mlx-lm has repacked them")
        return
    if not method.has("quant_method"):
        raise ModelDirectoryError(f"{directory.path} cannot be loaded by mlx-lm: {_WITHOUT_METHOD}")
    if method.values["quant_method"] not in _UNCHANGED_METHODS:
        raise config.unknown(f"the size of {method.values['quant_method']!r:.40} weights once mlx-lm has repacked them")


def _merge(directory: ModelDirectory, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Tensors by name, each once: mlx-lm loads every shard and keeps one of those that have the same name."""
    merged: dict[str, Tensor] = {}
    for tensor in tensors:
        other = merged.setdefault(tensor.name, tensor)
        if (other.dtype, other.shape) != (tensor.dtype, tensor.shape):
            shards = f"{other.shard} and {tensor.shard}"
            raise FootprintUnknown(directory.model_type, f"which {tensor.name[:80]} is loaded: {shards} have different")
        if tensor.name.endswith(_REPACKED):
            raise FootprintUnknown(
                directory.model_type, f"the size of {tensor.name[:80]} once mlx-lm has repacked it", hint=_CONVERT
            )
    if not merged:
        raise ModelDirectoryError(f"{directory.path} has shards without a single tensor")
    return tuple(merged.values())


_CONVERT = "convert it with mlx_lm.convert first"


def _sort(tensors: tuple[Tensor, ...], family: Family, config: Config) -> tuple[Tensor, ...]:
    """The tensors that the model file keeps."""
    kept = tuple(tensor for tensor in tensors if not any(drop(text_name(tensor.name), config) for drop in family.drops))
    if not kept:
        raise config.unknown("which of its tensors mlx-lm would keep: by their names, none")
    return kept


def _check_packing(directory: ModelDirectory, kept: tuple[Tensor, ...]) -> None:
    packed = next((tensor for tensor in kept if tensor.name.endswith(".scales")), None)
    if packed is not None and directory.quantization() is None:
        raise ModelDirectoryError(
            f"{directory.path} cannot be loaded by mlx-lm: {packed.shard} holds {packed.name[:80]}, but config.json"
            " has no quantization"
        )


def _check_strays(directory: ModelDirectory, kept: tuple[Tensor, ...], layers: Layers) -> None:
    """Tensors that are not the model's make mlx-lm's strict loading fail."""
    listed = _listed(directory)
    for tensor in kept:
        layer = layer_of(text_name(tensor.name))
        if layer is not None and layer >= layers.depth:
            reason = f"{tensor.name[:80]} belongs to layer {layer} of {layers.depth}"
        elif listed is not None and tensor.name not in listed:
            reason = f"{tensor.name[:80]} is not in the index"
        else:
            continue
        message = f"{directory.path} cannot be loaded by mlx-lm: {tensor.shard} is a stray: {reason}"
        raise ModelDirectoryError(message, hint=f"move {tensor.shard} out of the folder if it is not part of the model")


def _listed(directory: ModelDirectory) -> frozenset[str] | None:
    """The names in the index, or None where there is none."""
    index = directory.path / "model.safetensors.index.json"
    if not index.exists():
        return None
    names = read_json_object(index).get("weight_map")
    return frozenset(names) if isinstance(names, dict) and names else None


def _element_bytes(config: Config, kept: tuple[Tensor, ...]) -> int:
    """Bytes of one activation: the widest of the floating-point tensors that activations pass through.

    Tensors decide, not `torch_dtype`: float32 weights make float32 KV (measured). Two half types together widen too.
    """
    floats = {
        tensor.dtype
        for tensor in kept
        if tensor.dtype in ("F32", "F16", "BF16") and not tensor.name.endswith(_SIDE_TENSORS)
    }
    if not floats:
        raise config.unknown("the type of its activations: no tensor has a floating-point type that MLX computes in")
    if len(floats) > 1:
        config.note(f"its tensors are {' and '.join(sorted(floats))} in turns, so that activations become float32")
    return DTYPE_BYTES["F32"] if len(floats) > 1 else DTYPE_BYTES[floats.pop()]


def _packed(directory: ModelDirectory, kept: tuple[Tensor, ...]) -> tuple[int, int]:
    """How many weights are packed, and the bytes of them with scales and biases; (0, 0) where that is not said."""
    groups = (directory.quantization() or {}).get("group_size")
    if not isinstance(groups, int):
        return 0, 0
    scales = {tensor.name.removesuffix(".scales"): tensor for tensor in kept if tensor.name.endswith(".scales")}
    elements = sum(_elements(tensor.shape, groups) for tensor in scales.values())
    parts = (".scales", ".biases", ".weight")
    nbytes = sum(
        tensor.nbytes for tensor in kept for part in parts if tensor.name.endswith(part) and _stem(tensor) in scales
    )
    return elements, nbytes


def _stem(tensor: Tensor) -> str:
    return tensor.name.rpartition(".")[0]


def _elements(scales: tuple[int, ...], group_size: int) -> int:
    count = group_size
    for size in scales:
        count *= size
    return count


__all__ = ["ModelShape", "read_shape"]
