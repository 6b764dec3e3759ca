from __future__ import annotations

import json
from pathlib import Path

import pytest

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.serving.cache import find_identity, read_identity, serve_cache, write_identity
from serving.running import simple_identity
from serving.test_startup import at, inventory


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    identity = simple_identity()
    write_identity(tmp_path / "identity.json", identity)
    assert read_identity(tmp_path / "identity.json") == identity
    assert read_identity(tmp_path / "identity.json").digest == identity.digest
    assert [path.name for path in tmp_path.iterdir()] == ["identity.json"]


def test_a_document_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot write"):
        write_identity(tmp_path / "missing" / "identity.json", simple_identity())


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", "[" * 100_000, json.dumps(simple_identity().to_json() | {"extra": 1}), "\x00", "1"],
)
def test_a_document_that_is_none_is_an_input_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity.json").write_text(text)
    with pytest.raises(InputError, match="cannot be read"):
        read_identity(tmp_path / "identity.json")


def test_a_missing_document_says_what_it_is_for(tmp_path: Path) -> None:
    fleet = inventory(tmp_path / "fleet.key", {"c": ("cache", [at(1)])})
    with pytest.raises(InputError, match=r"fleet\.key\.identity\.json does not exist") as caught:
        serve_cache(fleet, "c", None, lambda line: None)
    assert caught.value.hint is not None


def test_the_document_lies_beside_the_key(tmp_path: Path) -> None:
    assert find_identity(inventory(tmp_path / "fleet.key", {})) == tmp_path / "fleet.key.identity.json"
    with pytest.raises(InputError, match="must be told"):
        find_identity(inventory(None, {}))
