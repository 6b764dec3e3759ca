"""Who a model is, found without loading it, and what the arithmetic depends on here."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_bench import SETTINGS
from kakeya_ops.demo.tiny_model import make_tiny_llama
from kakeya_ops.engine import identify
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.identify import read_identity, read_runtime, read_tokenizer, trying
from kakeya_ops.errors import ModelDirectoryError, UnsupportedModel
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.model.directory import ModelDirectory
from tiny_models import MakeFamily


def copied(path: Path, out: Path, **changes: Any) -> Path:
    """A copy of the model in `path` with another configuration."""
    shutil.copytree(path, out)
    config = json.loads((out / "config.json").read_text()) | changes
    (out / "config.json").write_text(json.dumps(config))
    return out


def difference(ours: CacheIdentity, theirs: CacheIdentity) -> str | None:
    found = ours.first_difference(theirs)
    return found and found[0]


def test_the_identity_is_that_of_the_loaded_model(tiny_llama: Path, shared_engine: Engine) -> None:
    assert read_identity(tiny_llama, SETTINGS).digest == shared_engine.identity.digest


def test_equal_models_in_other_places_are_equal(tiny_llama: Path, tmp_path: Path) -> None:
    assert read_identity(copied(tiny_llama, tmp_path / "copy"), SETTINGS) == read_identity(tiny_llama, SETTINGS)


def test_other_weights_are_another_model(tiny_llama: Path, tmp_path: Path) -> None:
    other = make_tiny_llama(tmp_path / "other", seed=1)
    assert difference(read_identity(tiny_llama, SETTINGS), read_identity(other, SETTINGS)) == "weights"


def test_another_rope_is_another_model(tiny_llama: Path, tmp_path: Path) -> None:
    other = copied(tiny_llama, tmp_path / "other", rope_theta=5000.0)
    assert difference(read_identity(tiny_llama, SETTINGS), read_identity(other, SETTINGS)) == "rope"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (replace(SETTINGS, block_tokens=32), "block_tokens"),
        (replace(SETTINGS, window=64), "sink"),
        (replace(SETTINGS, sink=0, window=64), "window"),
        (replace(SETTINGS, sink=9), None),
    ],
)
def test_the_cache_section_is_part_of_it(tiny_llama: Path, settings: CacheSettings, field: str | None) -> None:
    assert difference(read_identity(tiny_llama, SETTINGS), read_identity(tiny_llama, settings)) == field


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 3},
        {"hidden_size": 32},
        {"model_type": "no_such_family"},
        {"model_file": "model.py"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_mlx_lm_cannot_build_is_refused(tiny_llama: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    path = copied(tiny_llama, tmp_path / "broken", **changes)
    # Code of the model's own is not even read.
    (path / "model.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelDirectoryError, match="broken"):
        read_identity(path, SETTINGS)


def rewritten(path: Path, out: Path, name: str, content: Any) -> Path:
    """A copy of the model in `path` with another file called `name`."""
    shutil.copytree(path, out)
    (out / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return out


@pytest.mark.parametrize("template", ["{% for", "{{ nothing() }}", "{{ raise_exception('no') }}", "{{ 1 // 0 }}"])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_chat_template_that_renders_nothing_is_refused_at_once(
    tiny_llama: Path, tmp_path: Path, template: str, name: str
) -> None:
    config = json.loads((tiny_llama / "tokenizer_config.json").read_text())
    content = template if name.endswith("jinja") else config | {"chat_template": template}
    path = rewritten(tiny_llama, tmp_path / "m", name, content)
    with pytest.raises(ModelDirectoryError) as caught:
        read_tokenizer(ModelDirectory.open(path), {})
    assert caught.value.message.startswith(f"{path / name}: the chat template cannot be rendered: ")


@pytest.mark.parametrize(
    "template",
    [
        "{% if messages[0]['role'] != 'system' %}{{ raise_exception('no') }}{% endif %}x",
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}x",
    ],
)
def test_a_chat_template_may_want_a_system_message_or_none(tiny_llama: Path, tmp_path: Path, template: str) -> None:
    path = rewritten(tiny_llama, tmp_path / "m", "chat_template.jinja", template)
    assert read_tokenizer(ModelDirectory.open(path), {}).has_chat_template


@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json"])
def test_a_tokenizer_file_that_is_no_object_is_named(tiny_llama: Path, tmp_path: Path, name: str) -> None:
    path = rewritten(tiny_llama, tmp_path / "m", name, [1])
    with pytest.raises(ModelDirectoryError, match=f"{name} does not hold a JSON object"):
        read_tokenizer(ModelDirectory.open(path), {})


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ZeroDivisionError(), "ZeroDivisionError"),
        (AttributeError("x\n y"), "AttributeError: x y"),
        (ValueError("its own words"), "its own words"),
    ],
)
def test_whatever_mlx_lm_raises_while_it_builds_is_translated(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(identify, "load_model", fail)
    with pytest.raises(ModelDirectoryError) as caught:
        read_identity(tiny_llama, SETTINGS)
    assert caught.value.message == f"mlx-lm cannot load {tiny_llama}: {words}"


def test_whatever_is_raised_while_a_model_is_tried_names_what_was_tried(tiny_llama: Path) -> None:
    directory = ModelDirectory.open(tiny_llama)
    with pytest.raises(UnsupportedModel) as caught, trying("decoding", directory):
        raise KeyError("x")
    assert caught.value.message == f"decoding with {tiny_llama} (llama) fails: KeyError: 'x'"


def test_a_refusal_with_words_of_its_own_keeps_them(tiny_llama: Path) -> None:
    refusal = UnsupportedModel("as it is")
    with pytest.raises(UnsupportedModel) as caught, trying("decoding", ModelDirectory.open(tiny_llama)):
        raise refusal
    assert caught.value is refusal


def test_a_window_that_a_family_does_not_bear_is_refused(
    tiny_family: MakeFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kakeya_ops.engine import sink_window

    monkeypatch.setitem(sink_window.NO_WINDOW_FAMILIES, "qwen3", "of a test")
    read_identity(tiny_family("qwen3"), SETTINGS)
    with pytest.raises(UnsupportedModel, match="qwen3"):
        read_identity(tiny_family("qwen3"), replace(SETTINGS, window=64))


def test_the_runtime_names_what_the_arithmetic_depends_on() -> None:
    runtime = read_runtime()
    assert runtime == read_runtime()
    assert Runtime.from_json(runtime.to_json()) == runtime
    assert runtime.backend in {"cpu", "gpu"}
    assert all(runtime.to_json().values())
    assert runtime.first_difference(replace(runtime, threads="another BLAS")) == (
        "threads",
        runtime.threads,
        "another BLAS",
    )
