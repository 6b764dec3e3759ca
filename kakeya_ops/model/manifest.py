"""Revisions of a model directory: digests over contents, which for shards are remembered while they do not change.

A manifest in the user's cache folder keeps each shard's size, modification time and digest. It only saves time: when
it is missing, damaged or cannot be written, everything is computed again. Whoever writes one removes those of model
directories that are gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.files import read_json_object
from kakeya_ops.settings import user_cache_folder

_MANIFEST_VERSION = 2
_MOST_MANIFESTS = 256
_SETTLED_NS = 2_000_000_000
"""A file changed again within this time may keep its modification time, so a younger one is not remembered."""
_HASHING_THREADS = 4
_TOKENIZER_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True)
class Revision:
    """SHA-256 digests in hexadecimal: of the shards, of what turns text into tokens, and of the chat templates."""

    weights: str
    tokenizer: str
    chat_template: str


@dataclass(frozen=True)
class _Remembered:
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class _Manifest:
    """The file `path` about the model directory `directory`."""

    path: Path
    directory: str


def read_revision(directory: ModelDirectory, manifests: Path | None = None) -> Revision:
    """The revision of what `directory` holds now; reads every shard that changed since the last time.

    `manifests` is the folder of manifests, by default ``manifests`` in the user's cache folder. Raises
    `ModelDirectoryError` when a file cannot be read or changes meanwhile. Memory stays bounded whatever the sizes.
    """
    return Revision(
        weights=_digest_of(read_shard_digests(directory, manifests).items()),
        tokenizer=_digest_of(_tokenizer_digests(directory)),
        chat_template=_digest_of(_template_digests(directory)),
    )


def read_shard_digests(directory: ModelDirectory, manifests: Path | None = None) -> dict[str, str]:
    """SHA-256 of each shard's content, in hexadecimal, by the shard's name; otherwise as `read_revision`."""
    folder = manifests or user_cache_folder() / "manifests"
    place = str(directory.path.resolve())
    manifest = folder / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}.json"
    return _shard_digests(directory.shards, _Manifest(manifest, place))


def hash_file(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal. Raises `ModelDirectoryError`."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelDirectoryError(f"{path} cannot be read: {error.strerror}") from error


def _digest_of(parts: Iterable[tuple[str, str]]) -> str:
    """One digest over names and digests, whatever their order."""
    return _digest_json(sorted(parts))


def _digest_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _shard_digests(shards: tuple[Path, ...], manifest: _Manifest) -> dict[str, str]:
    known = _read_manifest(manifest.path)
    with ThreadPoolExecutor(_HASHING_THREADS) as threads:  # hashing lets go of the interpreter lock
        entries = dict(zip(shards, threads.map(lambda shard: _hash_shard(shard, known), shards), strict=True))
    lasting = {shard.name: entry for shard, entry in entries.items() if _is_settled(entry)}
    if lasting != known:
        _write_manifest(manifest, lasting)
        _prune(manifest.path.parent)
    return {shard.name: entry.sha256 for shard, entry in entries.items()}


def _hash_shard(shard: Path, known: Mapping[str, _Remembered]) -> _Remembered:
    try:
        with shard.open("rb") as file:
            before = os.fstat(file.fileno())
            entry = known.get(shard.name)
            if entry is not None and (entry.size, entry.mtime_ns) == (before.st_size, before.st_mtime_ns):
                return entry
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
    except OSError as error:
        raise ModelDirectoryError(f"{shard} cannot be read: {error.strerror}") from error
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ModelDirectoryError(f"{shard} changed while it was read", hint="wait until the download or copy is done")
    return _Remembered(after.st_size, after.st_mtime_ns, digest)


def _is_settled(entry: _Remembered) -> bool:
    return abs(time.time_ns() - entry.mtime_ns) > _SETTLED_NS


def _tokenizer_digests(directory: ModelDirectory) -> list[tuple[str, str]]:
    return [(file.name, _hash_tokenizer_file(file)) for file in directory.tokenizer_files]


def _hash_tokenizer_file(file: Path) -> str:
    if file.name != _TOKENIZER_CONFIG:
        return hash_file(file)
    # The template in it has a digest of its own, so that a new template is not taken for a new tokenizer.
    return _digest_json({key: value for key, value in read_json_object(file).items() if key != "chat_template"})


def _template_digests(directory: ModelDirectory) -> list[tuple[str, str]]:
    digests = [(file.relative_to(directory.path).as_posix(), hash_file(file)) for file in directory.template_files]
    config = next((file for file in directory.tokenizer_files if file.name == _TOKENIZER_CONFIG), None)
    if config is not None and (template := read_json_object(config).get("chat_template")) is not None:
        digests.append((_TOKENIZER_CONFIG, _digest_json(template)))
    return digests


def _read_manifest(path: Path) -> dict[str, _Remembered]:
    """What was remembered; nothing if the file is not there or not what `_write_manifest` writes."""
    try:
        document = json.loads(path.read_bytes())
        if document["version"] != _MANIFEST_VERSION:
            return {}
        shards = {str(name): _Remembered(**entry) for name, entry in document["shards"].items()}
        return shards if all(len(bytes.fromhex(entry.sha256)) == 32 for entry in shards.values()) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _write_manifest(manifest: _Manifest, shards: Mapping[str, _Remembered]) -> None:
    """Replace the manifest in one step. Where that is not possible the next start hashes again."""
    path = manifest.path
    document = {
        "version": _MANIFEST_VERSION,
        "directory": manifest.directory,
        "shards": {name: asdict(entry) for name, entry in shards.items()},
    }
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".manifest-")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(document, file)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)


def _prune(folder: Path) -> None:
    """Remove manifests of directories that are gone, those of which that cannot be told, and the oldest of too many."""
    with suppress(OSError):
        newest_first = sorted(folder.glob("*.json"), key=_mtime_ns, reverse=True)
        for index, path in enumerate(newest_first):
            if index >= _MOST_MANIFESTS or not _is_needed(path):
                path.unlink(missing_ok=True)


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # another process prunes too
        return 0


def _is_needed(path: Path) -> bool:
    try:
        return os.path.isdir(json.loads(path.read_bytes())["directory"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


__all__ = ["Revision", "hash_file", "read_revision", "read_shard_digests"]
