from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import kakeya_ops.settings as settings
from kakeya_ops.errors import InputError

SOURCE = Path(settings.__file__)


@pytest.mark.parametrize(
    ("value", "path"), [("", None), ("/etc/i.yaml", "/etc/i.yaml"), ("~/i.yaml", "/home/me/i.yaml")]
)
def test_the_inventory_may_be_named_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, path: str | None
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("KAKEYA_INVENTORY", value)
    assert settings.inventory_from_environment() == (None if path is None else Path(path))


def test_user_folders_follow_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert settings.user_config_folder() == Path("/a/kakeya")
    assert settings.user_cache_folder() == Path("/b/kakeya")


@pytest.mark.parametrize("value", ["", "relative"])
def test_user_folders_without_xdg_are_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", value)
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setattr(sys, "platform", "linux")
    assert settings.user_config_folder() == Path("/home/me/.config/kakeya")
    assert settings.user_cache_folder() == Path("/home/me/.cache/kakeya")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert settings.user_cache_folder() == Path("/home/me/Library/Caches/kakeya")


def test_a_home_folder_that_is_unknown_is_the_users_fault() -> None:
    with pytest.raises(InputError, match="cannot be expanded"):
        settings.expand_here("~nobody-of-this-name/x")


def test_at_most_five_names_are_read_and_only_here() -> None:
    package = SOURCE.parent
    readers = {
        path
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
    }
    assert readers == {SOURCE}
    names = {line.split("``")[1] for line in (settings.__doc__ or "").splitlines() if line.startswith("``")}
    assert len(names) <= 5
    strings = {node.value for node in ast.walk(ast.parse(SOURCE.read_text())) if isinstance(node, ast.Constant)}
    assert names <= strings


def test_the_own_command_is_the_name_only_where_the_shell_finds_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "venv/bin/kakeya"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(program), "demo"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert settings.own_command() == "venv/bin/kakeya"
    monkeypatch.setenv("PATH", str(program.parent))
    assert settings.own_command() == "kakeya"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "argv", ["/elsewhere/pytest"])
    assert settings.own_command() == "kakeya"
