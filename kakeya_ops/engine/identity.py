"""The cache identity of a model directory whose KV layout is known. No MLX here: only the layout needs it."""

from __future__ import annotations

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.manifest import Revision, read_revision


def make_identity(
    directory: ModelDirectory, layout: KvLayout, settings: CacheSettings, revision: Revision | None = None
) -> CacheIdentity:
    """The identity of the model in `directory`, whose KV is laid out as `layout` under `settings`.

    `revision` is the directory's, read now where it is not given. Raises `ModelDirectoryError`.
    """
    revision = revision or read_revision(directory)
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


__all__ = ["make_identity"]
