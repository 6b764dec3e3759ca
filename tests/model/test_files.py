from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from kakeya_ops.errors import ModelDirectoryError
from kakeya_ops.model.files import MAX_JSON_BYTES, check_present, check_safetensors, read_json_object


def test_what_json_has_no_word_for_stays_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"a": Infinity, "b": -Infinity, "c": NaN, "d": 1}')
    tagged = {name: {"__float__": word} for name, word in (("a", "Infinity"), ("b", "-Infinity"), ("c", "NaN"))}
    assert read_json_object(path) == tagged | {"d": 1}


def test_json_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with path.open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(ModelDirectoryError, match="is larger than 64 MiB"):
        read_json_object(path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelDirectoryError, match="is missing"):
        check_present(tmp_path)


def test_a_real_file_is_whole_even_without_tensors(tmp_path: Path) -> None:
    for name, tensors in (("full", {"x": np.ones(3)}), ("none", {})):
        save_file(tensors, tmp_path / name)
        check_safetensors(tmp_path / name)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"[]", "its header is not an object"),
        (b"{", "its header is not JSON"),
        (b'{"x": 1}', "tensor 'x' has no place"),
        (b'{"x": {"data_offsets": [0]}}', "tensor 'x' has no place"),
        (b'{"x": {"data_offsets": [0, 9]}}', "is cut off: .* instead of"),
    ],
)
def test_headers_that_are_wrong(tmp_path: Path, header: bytes, message: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ModelDirectoryError, match=message):
        check_safetensors(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=64), st.binary(max_size=64).map(lambda data: len(data).to_bytes(8, "little") + data))
def test_any_bytes_are_judged(tmp_path: Path, raw: bytes, framed: bytes) -> None:
    path = tmp_path / "x.safetensors"
    for data in (raw, framed):
        path.write_bytes(data)
        with pytest.raises(ModelDirectoryError):
            check_safetensors(path)
        with suppress(ModelDirectoryError):  # a few bytes may be an object
            assert isinstance(read_json_object(path), dict)


def test_every_cut_of_a_real_file_is_noticed(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    save_file({"x": np.arange(4, dtype=np.float32)}, whole)
    data = whole.read_bytes()
    part = tmp_path / "part"
    for length in range(len(data)):
        part.write_bytes(data[:length])
        with pytest.raises(ModelDirectoryError):
            check_safetensors(part)
