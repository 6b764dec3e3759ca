"""What this machine contributes to every host: the program, the model, the fleet key and the planned cache identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kakeya_ops.deploy.context import Step
from kakeya_ops.deploy.hosts import read_key
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState
from kakeya_ops.secret import Secret
from kakeya_ops.settings import expand_here

if TYPE_CHECKING:
    from kakeya_ops.certificates.authority import Authority

_PYTHON_DIGITS = 6


class ProgramSource(Protocol):
    """This program, ready to be installed. `id` is a digest of its content and of what it depends on."""

    @property
    def id(self) -> str:
        """Names its folder on the host, see `program_folder_id`."""
        ...

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        """What installs it; nothing where it is installed. Raises `KakeyaError` where it cannot be."""
        ...


class ModelSource(Protocol):
    """The model directory on this machine."""

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        """What brings the host's copy up to this one; nothing where it is equal, or the role needs no model.

        Raises `KakeyaError` where the host's copy differs and must not be touched, or has no room.
        """
        ...

    def after(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        """What follows once a deploy with these `steps` has been proved good."""
        ...


@dataclass(frozen=True)
class Material:
    """Everything that is the same for all hosts. `key` is None in a fleet without one."""

    key: Secret | None
    identity: CacheIdentity
    program: ProgramSource
    model: ModelSource
    authority: Authority | None = None
    """None where no endpoint of the fleet speaks TLS."""

    @property
    def key_file(self) -> bytes | None:
        """What the key's file holds, as `kakeya_ops.secret` writes it."""
        return None if self.key is None else self.key.reveal().hex().encode() + b"\n"

    @property
    def key_digest(self) -> str | None:
        """SHA-256 of the key's file, in hexadecimal."""
        return None if self.key_file is None else hashlib.sha256(self.key_file).hexdigest()

    @property
    def identity_document(self) -> bytes:
        """The planned cache identity, as a cache peer reads it."""
        return (json.dumps(self.identity.to_json(), indent=1) + "\n").encode("ascii")


def program_folder_id(id: str, python: str | None) -> str:
    """Names the folder of the program `id` on a host whose inventory says `python`.

    An interpreter that is given gets a folder of its own: to change it changes the service, and the generation before
    keeps the program that it was proved with.
    """
    return id if python is None else f"{id}-{hashlib.sha256(python.encode()).hexdigest()[:_PYTHON_DIGITS]}"


def plan_identity(inventory: Inventory) -> CacheIdentity:
    """The cache identity that every node of the fleet is to have, from the model directory on this machine.

    Raises `ModelDirectoryError` or `UnsupportedModel`.
    """
    from kakeya_ops.engine.identify import read_identity  # MLX is slow to import, and `--help` does without

    return read_identity(Path(expand_here(inventory.model.path)), cache_settings(inventory))


def cache_settings(inventory: Inventory) -> CacheSettings:
    """What of the inventory's cache section changes KV."""
    cache = inventory.cache
    return CacheSettings(block_tokens=cache.block_tokens, sink=cache.sink, window=cache.window)


__all__ = [
    "Material",
    "ModelSource",
    "ProgramSource",
    "cache_settings",
    "plan_identity",
    "program_folder_id",
    "read_key",
]
