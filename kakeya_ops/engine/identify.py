"""The cache identity and the runtime of a model directory on this machine."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model, load_tokenizer
from threadpoolctl import threadpool_info

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.layout_probe import probe_layout
from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.manifest import read_revision


def read_identity(path: Path, settings: CacheSettings) -> CacheIdentity:
    """The identity of the model in `path` under `settings`, without loading its weights into memory.

    Raises `ModelDirectoryError` when the directory is not a complete MLX model, `UnsupportedModel` when its KV cannot
    be carried exactly.
    """
    directory = ModelDirectory.open(path)
    return make_identity(directory, probe_layout(load_weights(directory, lazy=True)[0], settings), settings)


def make_identity(directory: ModelDirectory, layout: KvLayout, settings: CacheSettings) -> CacheIdentity:
    """The identity of a model whose layout is known."""
    revision = read_revision(directory)
    return CacheIdentity(
        model_type=str(directory.config["model_type"]),
        weights=revision.weights,
        quantization=directory.quantization(),
        geometry=directory.geometry(),
        rope=directory.rope(),
        kv_dtype=layout.parts[0].arrays[0].dtype,
        block_tokens=settings.block_tokens,
        sink=settings.sink if settings.window is not None else 0,
        window=settings.window,
        layout=layout,
        tokenizer=revision.tokenizer,
        chat_template=revision.chat_template,
    )


def load_weights(directory: ModelDirectory, *, lazy: bool = False) -> tuple[Any, dict[str, Any]]:
    """The model in `directory`, evaluated unless `lazy`, and its configuration as mlx-lm completed it.

    Code inside a model directory is never run.

    Raises `ModelDirectoryError` for a model that mlx-lm cannot build or whose weights do not match it.
    """
    try:
        model, config = load_model(directory.path, lazy=lazy)
    except (ValueError, KeyError, TypeError, OSError, RuntimeError, ImportError) as error:
        raise ModelDirectoryError(f"mlx-lm cannot load {directory.path}: {error}") from error
    return model, config


def read_tokenizer(directory: ModelDirectory, config: dict[str, Any]) -> Any:
    """mlx-lm's tokenizer of the model whose completed configuration is `config`.

    Raises `ModelDirectoryError` when there is none, or one that cannot be read.
    """
    if not directory.tokenizer_files:
        raise ModelDirectoryError(
            f"{directory.path} has no tokenizer", hint="copy tokenizer.json from the original model"
        )
    try:
        return load_tokenizer(directory.path, eos_token_ids=config.get("eos_token_id"))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ModelDirectoryError(f"the tokenizer in {directory.path} cannot be read: {error}") from error


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


__all__ = ["load_weights", "make_identity", "read_identity", "read_runtime", "read_tokenizer"]
