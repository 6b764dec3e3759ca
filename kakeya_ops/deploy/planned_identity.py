"""The cache identity that a deploy plans with, without MLX where the KV layout of this very model is remembered.

All of an identity but the layout (and the type in it) is read from the model directory each time. The layout only MLX
can tell, whose import takes longer than the rest of a small deploy; so it is kept in the user's cache folder, under
everything that it depends on. What is damaged, or was kept under a key that differs in anything, is not looked at.
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kakeya_ops.deploy.material import cache_settings, plan_identity
from kakeya_ops.engine.identity import make_identity
from kakeya_ops.inventory import Inventory
from kakeya_ops.kv.identity import MASK_VERSION, WIRE_VERSION, CacheIdentity
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.manifest import hash_file, read_revision
from kakeya_ops.settings import expand_here, user_cache_folder

_MOST_REMEMBERED = 64
_READ_BY_MLX_LM = ("*.json", "*.py")


@dataclass(frozen=True)
class LayoutKey:
    """Everything that a KV layout depends on. `weights` is the shards' revision, `files` the digests of the model
    directory's other files by name, `program` the id of this program with the versions of all that it needs."""

    weights: str
    files: dict[str, str]
    block_tokens: int
    sink: int
    window: int | None
    mlx: str
    mlx_lm: str
    python: str
    program: str
    formats: tuple[int, int] = (MASK_VERSION, WIRE_VERSION)

    @property
    def text(self) -> str:
        """The key as one text; equal texts are equal keys."""
        return _canonical(asdict(self))


def plan_with_memory(inventory: Inventory, program: str, memory: Path | None = None) -> CacheIdentity:
    """What `plan_identity` finds; from `memory` (by default in the user's cache folder) where that knows the layout.

    Raises `ModelDirectoryError` or `UnsupportedModel`.
    """
    memory = memory or user_cache_folder() / "layouts"
    directory = ModelDirectory.open(Path(expand_here(inventory.model.path)))
    revision, settings = read_revision(directory), cache_settings(inventory)
    key = _key_of(inventory, directory, revision.weights, program)
    layout = recall_layout(memory, key)
    if layout is not None:
        return make_identity(directory, layout, settings, revision)
    identity = plan_identity(inventory)
    if identity.weights == key.weights and _key_of(inventory, directory, revision.weights, program) == key:
        remember_layout(memory, key, identity.layout)
    return identity


def recall_layout(memory: Path, key: LayoutKey) -> KvLayout | None:
    """The layout that was remembered under exactly `key`; None where there is none, or one that is not whole."""
    try:
        document = json.loads(_place(memory, key).read_bytes())
        layout = KvLayout.from_json(document["layout"])
        whole = document["key"] == key.text and document["sha256"] == _digest(layout)
        return layout if whole and layout.block_tokens == key.block_tokens else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def remember_layout(memory: Path, key: LayoutKey, layout: KvLayout) -> None:
    """Keep `layout` under `key`, and no more than the latest few. Where that is not possible nothing is kept."""
    document = {"key": key.text, "layout": layout.to_json(), "sha256": _digest(layout)}
    with suppress(OSError):
        memory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=memory, prefix=".new-") as folder:
            part = Path(folder, "layout")
            part.write_text(json.dumps(document))
            part.replace(_place(memory, key))
        for old in sorted(memory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-_MOST_REMEMBERED]:
            old.unlink(missing_ok=True)


def _key_of(inventory: Inventory, directory: ModelDirectory, weights: str, program: str) -> LayoutKey:
    settings = cache_settings(inventory)
    apart = {*directory.tokenizer_files, *directory.shards}
    found = {path for pattern in _READ_BY_MLX_LM for path in directory.path.glob(pattern)} - apart
    return LayoutKey(
        weights=weights,
        files={path.name: hash_file(path) for path in sorted(found)},
        block_tokens=settings.block_tokens,
        sink=settings.sink,
        window=settings.window,
        mlx=version("mlx"),
        mlx_lm=version("mlx-lm"),
        python=platform.python_version(),
        program=program,
    )


def _place(memory: Path, key: LayoutKey) -> Path:
    return memory / f"{hashlib.sha256(key.text.encode()).hexdigest()[:32]}.json"


def _digest(layout: KvLayout) -> str:
    return hashlib.sha256(_canonical(layout.to_json()).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


__all__ = ["LayoutKey", "plan_with_memory", "recall_layout", "remember_layout"]
