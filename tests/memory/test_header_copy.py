"""A model is read over a connection as it is here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.memory.assessment import read_model
from kakeya_ops.memory.header_copy import copy_headers
from kakeya_ops.remote.local_runner import LocalRunner
from memory.public_models import write_founding_model


@dataclass(frozen=True)
class Said:
    """A host that says something."""

    stdout: bytes

    def run(self, argv: object, *, input: bytes = b"", timeout_seconds: float = 1.0) -> Said:
        return self


def test_the_founding_model_has_the_same_shape_from_afar(tmp_path: Path) -> None:
    model = write_founding_model(tmp_path / "a model")
    copy = tmp_path / "copy"
    copy.mkdir()
    assert copy_headers(LocalRunner("mac"), str(model), copy)
    assert {path.name: path.stat().st_size for path in copy.iterdir()} == {
        path.name: path.stat().st_size for path in model.iterdir()
    }
    assert sum(path.stat().st_blocks for path in copy.iterdir()) * 512 < 2**20
    assert read_model(copy) == read_model(model)


def test_home_is_the_host_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text("{}")
    (tmp_path / "copy").mkdir()
    assert copy_headers(LocalRunner("mac"), "~/m", tmp_path / "copy")
    assert (tmp_path / "copy/config.json").read_text() == "{}"


def test_a_host_without_the_model_says_so(tmp_path: Path) -> None:
    assert not copy_headers(LocalRunner("mac"), str(tmp_path / "nowhere"), tmp_path)


def test_a_header_that_is_too_long_to_be_one_is_left_to_the_reader(tmp_path: Path) -> None:
    folder, copy = tmp_path / "m", tmp_path / "copy"
    for path in (folder, copy):
        path.mkdir()
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert copy_headers(LocalRunner("mac"), str(folder), copy)
    with pytest.raises(ModelDirectoryError, match=r"model\.safetensors"):
        read_model(copy)


@pytest.mark.parametrize(
    "line", [b"nonsense", b"12 AAAA ../escape", b"12 AAAA model.safetensors", b"9999999999999999999 H4sI x", b"1 %% x"]
)
def test_an_answer_that_is_none_is_refused(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(ModelDirectoryError, match="could not be copied"):
        copy_headers(Said(line), "/models/m", tmp_path)
    assert not list(tmp_path.parent.glob("escape"))
