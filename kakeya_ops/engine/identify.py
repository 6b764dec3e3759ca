"""The cache identity and the runtime of a model directory on this machine."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from jinja2 import TemplateError
from mlx_lm.utils import load_model, load_tokenizer
from threadpoolctl import threadpool_info

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.identity import make_identity
from kakeya_ops.engine.layout_probe import probe_layout
from kakeya_ops.errors import KakeyaError, ModelDirectoryError, UnsupportedModel
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.files import read_json_object

_TOKENIZER_OBJECTS = frozenset({"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"})
_TEMPLATE_FAILURES = (TemplateError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def read_identity(path: Path, settings: CacheSettings) -> CacheIdentity:
    """The identity of the model in `path` under `settings`, without loading its weights into memory.

    Raises `ModelDirectoryError` when the directory is not a complete MLX model, `UnsupportedModel` when its KV cannot
    be carried exactly.
    """
    directory = ModelDirectory.open(path)
    model = load_weights(directory, lazy=True)[0]
    with trying("probing the KV layout", directory):
        layout = probe_layout(model, settings)
    return make_identity(directory, layout, settings)


def load_weights(directory: ModelDirectory, *, lazy: bool = False) -> tuple[Any, dict[str, Any]]:
    """The model in `directory`, evaluated unless `lazy`, and its configuration as mlx-lm completed it.

    Code inside a model directory is never run.

    Raises `ModelDirectoryError` for a model that mlx-lm cannot build, whatever stops it there, or whose weights do not
    match it.
    """
    try:
        model, config = load_model(directory.path, lazy=lazy)
    except Exception as error:
        raise ModelDirectoryError(f"mlx-lm cannot load {directory.path}: {_words_of(error)}") from error
    return model, config


@contextmanager
def trying(what: str, directory: ModelDirectory) -> Iterator[None]:
    """Raise `UnsupportedModel` for what mlx-lm's code for a model raises while `what` is tried with it."""
    try:
        yield
    except KakeyaError:
        raise
    except Exception as error:
        kind = directory.model_type
        raise UnsupportedModel(f"{what} with {directory.path} ({kind}) fails: {_words_of(error)}") from error


def _words_of(error: Exception) -> str:
    """What a library's error says, as one line; those of Python itself say little without their name."""
    said, name = " ".join(str(error).split()), type(error).__name__
    if said and type(error) in (ValueError, RuntimeError):
        return said
    return f"{name}: {said}" if said else name


def read_tokenizer(directory: ModelDirectory, config: dict[str, Any]) -> Any:
    """mlx-lm's tokenizer of the model whose completed configuration is `config`.

    Raises `ModelDirectoryError` when there is none, one that cannot be read, or a chat template that renders nothing.
    """
    if not directory.tokenizer_files:
        raise ModelDirectoryError(
            f"{directory.path} has no tokenizer", hint="copy tokenizer.json from the original model"
        )
    for file in directory.tokenizer_files:
        if file.name in _TOKENIZER_OBJECTS:
            read_json_object(file)
    try:
        tokenizer = load_tokenizer(directory.path, eos_token_ids=config.get("eos_token_id"))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ModelDirectoryError(f"the tokenizer in {directory.path} cannot be read: {_words_of(error)}") from error
    if tokenizer.has_chat_template:
        _try_template(tokenizer, directory)
    return tokenizer


def _try_template(tokenizer: Any, directory: ModelDirectory) -> None:
    """Render the shortest conversations there are; a template that refuses both would refuse every request."""
    question = {"role": "user", "content": "Hello"}
    refusals: list[Exception] = []
    for messages in ([question], [{"role": "system", "content": "Be brief."}, question]):
        try:
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            return
        except _TEMPLATE_FAILURES as error:
            refusals.append(error)
    raise ModelDirectoryError(
        f"{_template_file(directory)}: the chat template cannot be rendered: {_words_of(refusals[0])}",
        hint="copy the file from the original model",
    ) from refusals[0]


def _template_file(directory: ModelDirectory) -> Path:
    """Where the chat template is from: a file of its own comes before the tokenizer's configuration."""
    return next(iter(directory.template_files), directory.path / "tokenizer_config.json")


def read_runtime() -> Runtime:
    """What the arithmetic depends on here: versions, backend, device, and the BLAS that MLX's CPU backend calls."""
    device = mx.device_info()
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    return Runtime(
        mlx=version("mlx"),
        mlx_lm=version("mlx-lm"),
        backend="gpu" if on_gpu else "cpu",
        device=str(device.get("architecture") or device.get("device_name") or platform.machine()),
        threads="gpu" if on_gpu else _blas(),
    )


def _blas() -> str:
    """BLAS libraries that were put in front of MLX's own; NumPy's and SciPy's private copies are not used by it."""
    used = sorted(
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')} x{library['num_threads']}"
        for library in threadpool_info()
        if library["user_api"] == "blas" and ".libs" not in library["filepath"]
    )
    return ", ".join(used) or "mlx"


__all__ = ["load_weights", "make_identity", "read_identity", "read_runtime", "read_tokenizer", "trying"]
