"""Reading single files of a model directory, with the ways in which downloads are broken told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kakeya_ops.errors import ModelDirectoryError

MAX_JSON_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 100_000_000
"""The most that the safetensors format allows."""

_LFS_PREFIX = b"version https://git-lfs"


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Infinity and NaN become ``{"__float__": …}``, so the value is plain JSON.

    Raises `ModelDirectoryError` naming the file if it is missing, too large, or something else.
    """
    check_present(path)
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelDirectoryError(f"{path} is larger than {MAX_JSON_BYTES // 2**20} MiB")
        value = json.loads(path.read_bytes(), parse_constant=lambda name: {"__float__": name})
    except OSError as error:
        raise ModelDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelDirectoryError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelDirectoryError(f"{path} does not hold a JSON object")
    return value


def check_present(path: Path) -> None:
    """Raise `ModelDirectoryError` unless `path` is a readable file with contents of its own."""
    if path.is_symlink() and not path.exists():
        raise ModelDirectoryError(f"{path} is a link to nothing: its file was not downloaded")
    if not path.is_file():
        raise ModelDirectoryError(f"{path} is missing")
    try:
        with path.open("rb") as file:
            start = file.read(len(_LFS_PREFIX))
    except OSError as error:
        raise ModelDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    if start == _LFS_PREFIX:
        raise ModelDirectoryError(f"{path} is a Git LFS pointer, not the file", hint="fetch it with: git lfs pull")


def check_safetensors(path: Path) -> tuple[str, ...]:
    """The names of the tensors in `path`.

    Raises `ModelDirectoryError` unless it is a safetensors file with all the bytes that its header promises.
    """
    check_present(path)
    header, size, data_start = _read_header(path)
    end = data_start + max((_end_of(path, name, tensor) for name, tensor in header.items()), default=0)
    if size != end:
        what = "is cut off" if size < end else "has bytes that its header does not know"
        raise ModelDirectoryError(f"{path} {what}: {size} bytes instead of {end}", hint="download it again")
    return tuple(header)


def _read_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """The header's tensors, the file's size, and where the tensors' bytes begin."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise ModelDirectoryError(f"{path} is not a safetensors file, or is cut off")
            header = json.loads(file.read(length))
    except OSError as error:
        raise ModelDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelDirectoryError(f"{path} is not a safetensors file: its header is not JSON") from error
    if not isinstance(header, dict):
        raise ModelDirectoryError(f"{path} is not a safetensors file: its header is not an object")
    header.pop("__metadata__", None)
    return header, size, 8 + length


def _end_of(path: Path, name: str, tensor: Any) -> int:
    try:
        _, end = tensor["data_offsets"]
        return int(end)
    except (TypeError, KeyError, ValueError) as error:
        raise ModelDirectoryError(f"{path} is not a safetensors file: tensor {name[:60]!r} has no place") from error


__all__ = ["MAX_HEADER_BYTES", "MAX_JSON_BYTES", "check_present", "check_safetensors", "read_json_object"]
