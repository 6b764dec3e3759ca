"""An identity made without MLX is the one made with it, and depends on all that it is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.identify import read_identity
from kakeya_ops.engine.identity import make_identity
from kakeya_ops.model.directory import ModelDirectory
from kakeya_ops.model.manifest import read_revision

SETTINGS = CacheSettings(block_tokens=16)


def test_a_known_layout_makes_the_identity_that_mlx_finds(tiny_llama: Path) -> None:
    found = read_identity(tiny_llama, SETTINGS)
    assert make_identity(ModelDirectory.open(tiny_llama), found.layout, SETTINGS) == found


def test_a_revision_that_is_given_is_the_one_that_is_named(tiny_llama: Path) -> None:
    directory, found = ModelDirectory.open(tiny_llama), read_identity(tiny_llama, SETTINGS)
    revision = replace(read_revision(directory), tokenizer="another")
    made = make_identity(directory, found.layout, SETTINGS, revision)
    assert found.first_difference(made) == ("tokenizer", found.tokenizer, "another")


def test_without_a_window_the_sink_means_nothing(tiny_llama: Path) -> None:
    directory, layout = ModelDirectory.open(tiny_llama), read_identity(tiny_llama, SETTINGS).layout
    assert make_identity(directory, layout, replace(SETTINGS, sink=9)).sink == 0
    assert make_identity(directory, layout, replace(SETTINGS, sink=9, window=64)).sink == 9
