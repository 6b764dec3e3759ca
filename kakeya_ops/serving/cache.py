"""The cache peer: keeps KV for others and has no model. What it may keep, it knows from an identity document."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.inventory import Inventory
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.serving.pressure import watching_memory
from kakeya_ops.serving.server import Server
from kakeya_ops.serving.startup import exchanging, start_up
from kakeya_ops.settings import expand_here

_MOST_BYTES = 4 * 1024 * 1024


def serve_cache(
    inventory: Inventory, name: str | None, identity_file: Path | None, tell: Callable[[str], None]
) -> None:
    """Serve the cache peer called `name` until it is told to stop; `tell` is given one line when it is ready.

    Without `identity_file` the document lies beside the fleet key. Raises `KakeyaError`.
    """
    identity = read_identity(identity_file or find_identity(inventory))
    startup = start_up(inventory, name, "cache")
    node = Node(startup.settings, BlockPool(startup.host.pool_bytes), identity)
    server = Server(startup.peer_sites(make_peer_app(node), node.counters))
    with exchanging(node, inventory), watching_memory(node, inventory.memory.keep_free_bytes):
        server.run(lambda: tell(f"cache {node.id} is ready at {startup.addresses}"))


def find_identity(inventory: Inventory) -> Path:
    """Where the identity document lies: ``<key file>.identity.json``. Raises `InputError` in a fleet without a key."""
    if inventory.fleet.key_file is None:
        raise InputError(
            "a cache peer of a fleet without a key must be told its identity document", hint="give --identity FILE"
        )
    return expand_here(f"{inventory.fleet.key_file}.identity.json")


def read_identity(path: Path) -> CacheIdentity:
    """The identity in the document at `path`. Raises `InputError` if there is none."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
        return CacheIdentity.from_json(document)
    except FileNotFoundError:
        raise InputError(
            f"identity document {path} does not exist",
            hint="a cache peer has no model and keeps only what this document describes; deploy writes it",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"identity document {path} cannot be read: {error}") from error


def write_identity(path: Path, identity: CacheIdentity) -> None:
    """Write the document, whole or not at all. Raises `EnvironmentFault`."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(identity.to_json(), indent=1) + "\n", encoding="ascii")
        os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(f"cannot write identity document {path}: {error.strerror}") from error


__all__ = ["find_identity", "read_identity", "serve_cache", "write_identity"]
