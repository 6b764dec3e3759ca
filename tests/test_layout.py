"""The shape of the tree, as far as ruff, mypy and import-linter do not see it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kakeya_ops"
TESTS = ROOT / "tests"

TOP_LEVEL = frozenset(
    [
        "kakeya_ops",
        "templates",
        "inventory.yaml",
        "runbooks",
        "tests",
        "docs",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "Makefile",
    ]
)
BUILT = frozenset({"build", "dist"})
MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 50

WITHOUT_TESTS_OF_THEIR_OWN = {
    "engine/contract.py": "plain values",
    "serving/contract.py": "plain values",
    "serving/draining.py": "one number",
    "wire/paths.py": "plain names",
}

SOURCES = sorted([*PACKAGE.rglob("*.py"), *TESTS.rglob("*.py")])
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def long_functions(source: str) -> Iterator[str]:
    """``name: lines`` of each function in `source` that is longer than it may be."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_FUNCTION_LINES:
                yield f"{node.name}: {lines}"


def test_the_top_level_is_what_newcomers_were_promised() -> None:
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert found - BUILT == TOP_LEVEL
    assert (ROOT / ".ci/run").is_file()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_files_and_functions_fit_on_a_screen_or_few(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MOST_FILE_LINES
    assert not list(long_functions(source))


def test_a_long_function_is_found() -> None:
    body = "    pass\n" * MOST_FUNCTION_LINES
    assert list(long_functions(f"async def long():\n{body}")) == ["long: 51"]
    assert not list(long_functions(f"def fits():\n{body}".removesuffix("    pass\n")))


def test_every_module_has_its_tests() -> None:
    lacking = {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if not (TESTS / path.relative_to(PACKAGE)).with_name(f"test_{path.name}").is_file()
    }
    assert sorted(lacking - set(WITHOUT_TESTS_OF_THEIR_OWN)) == []
    assert sorted(set(WITHOUT_TESTS_OF_THEIR_OWN) - lacking) == []


def test_nothing_is_left_unfinished() -> None:
    pages = [page for folder in ("docs", "runbooks", "templates") for page in (ROOT / folder).rglob("*.md")]
    texts = [*SOURCES, *pages, *(ROOT / name for name in TOP_LEVEL if (ROOT / name).is_file())]
    assert [relative(path) for path in texts if UNFINISHED.search(path.read_text())] == []
