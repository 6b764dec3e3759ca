"""This program as a wheel, built from a checkout or packed again from where it is installed, and its dependencies'
versions as they are here."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import sys
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import kakeya_ops
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.remote.process import run_process

PROJECT = "kakeya"
_BUILD_SECONDS = 300.0
_TAIL_CHARACTERS = 600
_PACKED = ("pyproject.toml", "kakeya_ops", "runbooks", "templates")
"""What of a checkout goes into the wheel, as far as it matters to what the program does."""
_MADE_BY_INSTALLER = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file knows: equal content makes equal bytes."""


@dataclass(frozen=True)
class Wheel:
    """A wheel by its file name, which pip reads."""

    name: str
    data: bytes


class WheelSource(Protocol):
    """Where a wheel of this program comes from."""

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the content; quick to have."""
        ...

    @property
    def requirements(self) -> tuple[str, ...]:
        """What the program depends on, as its metadata say it."""
        ...

    def wheel(self) -> Wheel:
        """The wheel, made when it is first asked for. Thread-safe. Raises `EnvironmentFault`."""
        ...


def find_source(package: Path | None = None) -> WheelSource:
    """The source of the program that runs now; `package` is the folder of its modules.

    Raises `EnvironmentFault` if it is neither a checkout nor installed.
    """
    root = (package or Path(kakeya_ops.__file__).parent).parent
    if (root / "pyproject.toml").is_file():
        return Checkout(root)
    try:
        return Installed(distribution(PROJECT))
    except PackageNotFoundError:
        raise EnvironmentFault(
            f"the program in {root} is neither a checkout nor installed, so no wheel can be made of it",
            hint=f"install it: pip install {PROJECT}",
        ) from None


class Checkout:
    """A checkout of this project in the folder `root`, built by pip."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._building = threading.Lock()
        self._wheel: Wheel | None = None

    @cached_property
    def digest(self) -> str:
        """See `WheelSource`."""
        files = (file for name in _PACKED for file in _files_below(self._root / name))
        return _digest({file.relative_to(self._root).as_posix(): file.read_bytes() for file in files})

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """See `WheelSource`."""
        document: dict[str, Any] = tomllib.loads((self._root / "pyproject.toml").read_text())
        return tuple(document["project"]["dependencies"])

    def wheel(self) -> Wheel:
        """See `WheelSource`. pip may fetch what builds the wheel."""
        with self._building:
            if self._wheel is None:
                self._wheel = self._build()
            return self._wheel

    def _build(self) -> Wheel:
        with tempfile.TemporaryDirectory(prefix="kakeya-wheel-") as folder:
            quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
            argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", *quiet, "--wheel-dir", folder, str(self._root)]
            done = run_process(argv, timeout_seconds=_BUILD_SECONDS)
            built = sorted(Path(folder).glob("*.whl"))
            if done.ending != "exit" or done.status != 0 or len(built) != 1:
                said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_TAIL_CHARACTERS:]
                raise EnvironmentFault(
                    f"no wheel could be built of {self._root}: {said or done.ending}",
                    hint=f"try it by hand: {sys.executable} -m pip wheel --no-deps {self._root}",
                )
            return Wheel(built[0].name, built[0].read_bytes())


class Installed:
    """This program as pip has installed it here: the files that its RECORD names, packed again."""

    def __init__(self, found: Distribution) -> None:
        self._found = found

    @cached_property
    def digest(self) -> str:
        """See `WheelSource`."""
        return _digest(self._files)

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """See `WheelSource`."""
        return tuple(self._found.requires or ())

    def wheel(self) -> Wheel:
        """See `WheelSource`."""
        name = re.sub(r"[-_.]+", "_", self._found.metadata["Name"]).lower()
        return Wheel(f"{name}-{self._found.version}-py3-none-any.whl", pack(self._files, self._info))

    @property
    def _info(self) -> str:
        return next(file.parts[0] for file in self._found.files or () if file.name == "METADATA")

    @cached_property
    def _files(self) -> dict[str, bytes]:
        """What the wheel held that this was installed from. Raises `EnvironmentFault`."""
        if "Tag: py3-none-any" not in (self._found.read_text("WHEEL") or ""):
            raise EnvironmentFault("the installed program was made for one kind of machine and cannot be packed again")
        try:
            return {
                file.as_posix(): Path(str(self._found.locate_file(file))).read_bytes()
                for file in self._found.files or ()
                if _was_in_wheel(file)
            }
        except OSError as error:
            raise EnvironmentFault(
                f"the installed program is not whole: {error.filename} cannot be read: {error.strerror}",
                hint=f"install it again: pip install --force-reinstall --no-deps {PROJECT}",
            ) from error


def pack(files: Mapping[str, bytes], info: str) -> bytes:
    """A wheel with `files` by their path, and the RECORD of them in the folder `info`; equal content, equal bytes."""
    record = f"{info}/RECORD"
    lines = [f"{name},sha256={_record_digest(data)},{len(data)}\n" for name, data in sorted(files.items())]
    whole = {**dict(sorted(files.items())), record: "".join([*lines, f"{record},,\n"]).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in whole.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def pin(requirements: Iterable[str]) -> str:
    """A constraints file: the versions installed here of what `requirements` name, and of all that these need.

    So a host computes with what the planned cache identity was read with. What is not installed here, because it is
    for another system, is left to pip.
    """
    pins: dict[str, str] = {}
    left = list(requirements)
    while left:
        requirement = left.pop()
        name = requirement_name(requirement)
        if name in pins or "extra ==" in requirement:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        pins[name] = found.version.partition("+")[0]
        left += found.requires or ()
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def requirement_name(requirement: str) -> str:
    """The normalized name of the package that a requirement is about."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0] if found else "").lower()


def _files_below(path: Path) -> list[Path]:
    found = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return [file for file in found if "__pycache__" not in file.parts and not file.name.startswith(".")]


def _was_in_wheel(file: PurePosixPath) -> bool:
    """Whether a file that RECORD names is not one that the installer made: scripts, compiled modules, notes."""
    if file.parts[0].endswith(".dist-info") and file.name in _MADE_BY_INSTALLER:
        return False
    return ".." not in file.parts and not file.is_absolute() and file.suffix != ".pyc"


def _digest(files: Mapping[str, bytes]) -> str:
    entries = "".join(f"{hashlib.sha256(data).hexdigest()} {name}\n" for name, data in sorted(files.items()))
    return hashlib.sha256(entries.encode()).hexdigest()


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


__all__ = [
    "PROJECT",
    "Checkout",
    "Installed",
    "Wheel",
    "WheelSource",
    "find_source",
    "pack",
    "pin",
    "requirement_name",
]
