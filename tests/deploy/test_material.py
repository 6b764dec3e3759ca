"""What this machine contributes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from deploy.states import KEY, PLANNER_INVENTORY, inventory, material
from kakeya_ops.deploy.material import plan_identity, read_key
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.identify import read_identity
from kakeya_ops.errors import InputError
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.secret import write_fleet_key
from kakeya_ops.serving.cache import read_identity as read_document


def test_the_key_s_file_is_as_secret_py_writes_it(home: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_key(inventory())
    path = home / ".kakeya/fleet.key"
    key = write_fleet_key(path)
    assert read_key(inventory()) == key
    made = material(key=key)
    assert made.key_file == path.read_bytes()
    assert made.key_digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (material(key=None).key_file, material(key=None).key_digest) == (None, None)


def test_a_fleet_without_a_key_has_none() -> None:
    assert read_key(inventory(PLANNER_INVENTORY.replace("{name: pair}", "{name: pair, key_file: null}"))) is None


def test_a_cache_peer_can_read_the_identity_document(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    path.write_bytes(material(key=KEY).identity_document)
    assert read_document(path) == material().identity
    assert CacheIdentity.from_json(json.loads(path.read_bytes())).digest == material().identity.digest


def test_the_planned_identity_is_that_of_the_model_under_the_inventory_s_cache_section(tiny_llama: Path) -> None:
    text = PLANNER_INVENTORY.replace("~/models/tiny", str(tiny_llama))
    text += "cache: {window: 256, sink: 2, block_tokens: 32}\n"
    planned = plan_identity(inventory(text))
    assert planned == read_identity(tiny_llama, CacheSettings(block_tokens=32, sink=2, window=256))
