"""Brings a host's copy of the model up to the one on this machine, and proves by its hashes that it is.

New files gather in a folder inside the host's model folder, out of the model's sight. Only when all are there, and
the host's own hashes of them are right, do they take their places, in one call. What deploy has hashed on a host it
writes down there, with sizes and times, so that the next look costs no hashing.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.model_files import INCOMING, REPLACED, HostFiles, Seen
from kakeya_ops.deploy.remote_files import remove, write_reversibly
from kakeya_ops.errors import ConnectFailed, ConnectionLost, InputError, ModelDirectoryError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.model.directory import ModelDirectory, is_read
from kakeya_ops.model.manifest import hash_file, read_shard_digests
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, ModelFacts, Unknown
from kakeya_ops.settings import expand_here
from kakeya_ops.units import render_bytes

Difference = Literal["is missing", "has another size", "has another content", "is not in this model", "is not proved"]

RECORD = "model.json"
"""In the install root: what was hashed there."""
_OTHER_WEIGHTS = frozenset([".bin", ".gguf", ".h5", ".msgpack", ".npz", ".onnx", ".pt", ".pth", ".safetensors"])
"""Weights that the engine never reads; beside the shards they would be sent for nothing."""
_ATTEMPTS = 2
"""A file that was resumed upon something spoiled is sent once more, from its beginning."""
_LOST_IN_A_ROW = 3
"""So many broken connections without a byte between them, and it is not worth trying again."""


@dataclass(frozen=True)
class ModelFile:
    """A file of the model on this machine, and the SHA-256 of its content in hexadecimal."""

    path: Path
    size_bytes: int
    sha256: str


def read_model(inventory: Inventory) -> ModelCopy:
    """The inventory's model on this machine; hashes what has changed since the last time.

    Raises `ModelDirectoryError`, and `InputError` for file names that a Mac could not hold or tell apart.
    """
    directory = ModelDirectory.open(Path(expand_here(inventory.model.path)))
    digests = read_shard_digests(directory)
    files = {
        path.relative_to(directory.path).as_posix(): ModelFile(
            path, path.stat().st_size, digests.get(path.name) or hash_file(path)
        )
        for path in _find_files(directory)
    }
    _check_names(files)
    return ModelCopy(files, inventory.model.sync)


@dataclass(frozen=True)
class ModelCopy:
    """A `ModelSource`: `files` by their path in the model directory. Without `sync` a host must have them already."""

    files: Mapping[str, ModelFile]
    sync: bool = True

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        """See `ModelSource`. Raises `DeployError` for a copy that differs and is not ours to change, or no room."""
        if host.role == "cache":
            return ()
        found = ModelFacts({}, None) if state.model is None or isinstance(state.model, Unknown) else state.model
        differences = self._compare(found, places.model)
        if isinstance(state.model, Unknown):
            differences = dict.fromkeys(self.files, "is not proved")
        if not differences:
            return ()
        if not self.sync:
            _refuse(host.name, places.model, differences)
            return (CheckModel(self),)
        to_send = sum(self.files[name].size_bytes for name, what in differences.items() if _is_sent(what))
        self._check_room(host, places, state, to_send - _gathered_bytes(found))
        replaces = isinstance(state.model, Unknown) or _may_replace(differences, found)
        return (SyncModel(self, to_send, replaces),)

    def after(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """What is left to do once a deploy with `steps` has been proved good."""
        return (ForgetReplaced(),) if any(isinstance(step, SyncModel) and step.replaces for step in steps) else ()

    def _compare(self, found: ModelFacts, folder: str) -> dict[str, Difference]:
        """What of the host's files in `folder` is not known to be ours, by path."""
        record = _read_record(found.record, folder)
        differences: dict[str, Difference] = {}
        for name, ours in self.files.items():
            seen = found.files.get(name)
            if seen is None:
                differences[name] = "is missing"
            elif seen[0] != ours.size_bytes:
                differences[name] = "has another size"
            elif name not in record or record[name][:2] != seen:
                differences[name] = "is not proved"
            elif record[name][2] != ours.sha256:
                differences[name] = "has another content"
        for name in _strangers(found.files, self.files):
            differences[name] = "is not in this model"
        return differences

    def _check_room(self, host: ResolvedHost, places: Places, state: HostState, needed_bytes: int) -> None:
        """What is free is known of the volume with the home folder alone."""
        free, inside = state.disk_free_bytes, places.model.startswith(f"{state.home}/")
        if inside and not isinstance(free, Unknown) and needed_bytes > free:
            raise DeployError(
                host.name,
                f"no room for the model: {render_bytes(needed_bytes)} to copy, {render_bytes(free)} free",
                hint=f"make room, or let model.path lead to another volume than that of {places.model}",
            )


@dataclass(frozen=True)
class SyncModel:
    """Send what the host lacks; files that it has already are hashed there and left alone.

    `replaces` is whether files of an earlier model may have to be put aside for it.
    """

    model: ModelCopy
    to_send_bytes: int = 0
    replaces: bool = True

    @property
    def title(self) -> str:
        """See `Step`."""
        amount = f"{render_bytes(self.to_send_bytes)} to send" if self.to_send_bytes else "hash what is there"
        return f"sync the model ({amount})"

    def apply(self, context: HostContext) -> None:
        """See `Step`. What has arrived stays for the next attempt, whatever happens."""
        files, ours = HostFiles(context, context.places.model), self.model.files
        listed = files.list()
        here = _prove(files, ours, listed)
        lacking = {name: file for name, file in ours.items() if name not in here}
        aside = [*(name for name in lacking if name in listed), *_strangers(listed, ours)]
        if lacking or aside:
            here |= _Delivery(files, lacking).deliver()
            if aside:
                context.undo("the model's files", lambda: files.swap_back(aside, list(lacking)))
            files.swap_in(aside, list(lacking))
        _write_record(context, ours, here)


@dataclass(frozen=True)
class CheckModel:
    """The host must have every file already; none is sent."""

    model: ModelCopy

    @property
    def title(self) -> str:
        """See `Step`."""
        return "hash the model that is there (model.sync is false)"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        files, ours = HostFiles(context, context.places.model), self.model.files
        here = _prove(files, ours, files.list())
        _refuse(context.host.name, files.folder, {name: "has another content" for name in ours if name not in here})
        _write_record(context, ours, here)


@dataclass(frozen=True)
class ForgetReplaced:
    """Files of an earlier model are kept until the new one has been proved: the last step of a deploy."""

    @property
    def title(self) -> str:
        """See `Step`."""
        return "remove the model files that were replaced"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        remove(context, f"{context.places.model}/{REPLACED}")


@dataclass(frozen=True)
class _Delivery:
    """Gets `lacking` files into the incoming folder of the host, each with the right hash."""

    files: HostFiles
    lacking: Mapping[str, ModelFile]

    def deliver(self) -> dict[str, Seen]:
        """What the host says of each, once all are right. Raises `DeployError` for one that does not arrive whole."""
        self.files.make_folders(f"{INCOMING}/{name}" for name in self.lacking)
        good = self._prove(self.lacking)
        for _ in range(_ATTEMPTS):
            if missing := self._without(good):
                self._send_all(missing)
                good |= self._prove(missing)
                if spoiled := self._without(good):
                    remove(self.files.context, *map(self._incoming, spoiled))
        for name in self._without(good):
            raise DeployError(
                self.files.context.host.name,
                f"{self._incoming(name)} arrived with another content than was sent, {_ATTEMPTS} times",
                hint="check the disk of the host, and the memory of both machines",
            )
        return good

    def _without(self, good: Mapping[str, Seen]) -> dict[str, ModelFile]:
        return {name: file for name, file in self.lacking.items() if name not in good}

    def _send_all(self, missing: Mapping[str, ModelFile]) -> None:
        context = self.files.context
        total = sum(file.size_bytes for file in self.lacking.values())
        done = total - sum(file.size_bytes for file in missing.values())
        with context.transfer("model", total) as show:
            for name, file in missing.items():
                self._send(name, file, lambda sent, before=done: show(before + sent))  # type: ignore[misc]
                done += file.size_bytes

    def _send(self, name: str, file: ModelFile, show: Callable[[int], None]) -> None:
        """Send one file, again after each broken connection as long as that gets anywhere."""
        context, furthest, lost = self.files.context, 0, 0

        def progress(at_host: int) -> None:
            nonlocal furthest, lost
            furthest, lost = (at_host, 0) if at_host > furthest else (furthest, lost)
            show(at_host)
            context.check()

        while True:
            try:
                context.runner.upload(file.path, self._incoming(name), progress=progress)
                return
            except (ConnectionLost, ConnectFailed) as error:
                lost += 1
                if lost >= _LOST_IN_A_ROW:
                    raise
                context.tell(f"{error.message}; {render_bytes(furthest)} of {name} have arrived, going on")
                context.pause(context.timing.retry)

    def _prove(self, expected: Mapping[str, ModelFile]) -> dict[str, Seen]:
        return _prove(self.files, expected, self.files.list(), f"{INCOMING}/")

    def _incoming(self, name: str) -> str:
        return f"{self.files.folder}/{INCOMING}/{name}"


def _prove(
    files: HostFiles, expected: Mapping[str, ModelFile], listed: Mapping[str, Seen], prefix: str = ""
) -> dict[str, Seen]:
    """Those of `expected` that are on the host below `prefix`, by the host's own hash."""
    right_size = {
        f"{prefix}{name}": file.size_bytes
        for name, file in expected.items()
        if (seen := listed.get(f"{prefix}{name}")) and seen.size_bytes == file.size_bytes
    }
    hashes = files.hash(right_size)
    return {
        name: listed[f"{prefix}{name}"]
        for name, file in expected.items()
        if hashes.get(f"{prefix}{name}") == file.sha256
    }


def _refuse(host: str, folder: str, differences: Mapping[str, Difference]) -> None:
    """Raise `DeployError` that names the first of the files that differ for sure."""
    certain = sorted(name for name, what in differences.items() if what != "is not proved")
    if certain:
        more = f", and {len(certain) - 1} more differ" if len(certain) > 1 else ""
        raise DeployError(
            host,
            f"the model in {folder} is not the one here: {certain[0]} {differences[certain[0]]}{more}",
            hint="copy the model there, or set model.sync to true",
        )


def _strangers(found: Iterable[str], ours: Mapping[str, ModelFile]) -> list[str]:
    """Files that the engine would read though they are not of this model."""
    return [name for name in found if name not in ours and is_read(name)]


def _is_sent(difference: Difference) -> bool:
    return difference in ("is missing", "has another size", "has another content")


def _may_replace(differences: Mapping[str, Difference], found: ModelFacts) -> bool:
    """Whether a file that is there differs, or may, or one was put aside by a deploy that did not come to its end."""
    return any(name in found.files for name in differences) or any(
        name.startswith(f"{REPLACED}/") for name in found.files
    )


def _gathered_bytes(found: ModelFacts) -> int:
    return sum(size for name, (size, _) in found.files.items() if name.startswith(f"{INCOMING}/"))


def _write_record(context: HostContext, ours: Mapping[str, ModelFile], here: Mapping[str, Seen]) -> None:
    entries = {name: (seen.size_bytes, seen.mtime_seconds, ours[name].sha256) for name, seen in here.items()}
    data = json.dumps({"folder": context.places.model, "files": entries}, indent=0, sort_keys=True).encode() + b"\n"
    write_reversibly(context, f"{context.places.root}/{RECORD}", data, 0o600)


def _read_record(record: bytes | None, folder: str) -> dict[str, tuple[int, int, str]]:
    """What deploy has hashed in `folder`: size, modification time and SHA-256 by path; nothing if unreadable."""
    try:
        document = json.loads(record or b"{}")
        if document.get("folder") != folder:
            return {}
        entries = document["files"].items()
        return {str(name): (int(size), int(mtime), str(sha256)) for name, (size, mtime, sha256) in entries}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _find_files(directory: ModelDirectory) -> list[Path]:
    """What the engine reads, and the small files beside it."""
    beside = (path for path in directory.path.iterdir() if path.is_file() and path.suffix not in _OTHER_WEIGHTS)
    read = (*directory.shards, *directory.tokenizer_files, *directory.template_files)
    return sorted({path for path in (*read, *beside) if not path.name.startswith(".")})


def _check_names(names: Iterable[str]) -> None:
    """A Mac's file system holds names that differ only in case or in how accents are encoded to be one."""
    seen: dict[str, str] = {}
    for name in names:
        if not name.isprintable() or "\\" in name:
            raise ModelDirectoryError(f"the model has a file with a name that cannot be copied: {name!r}")
        folded = unicodedata.normalize("NFC", name).casefold()
        if other := seen.get(folded):
            raise InputError(f"the model's files {other} and {name} would be one file on a Mac")
        seen[folded] = name


__all__ = ["RECORD", "CheckModel", "ForgetReplaced", "ModelCopy", "ModelFile", "SyncModel", "read_model"]
