"""The pages of docs/ build as a site without a warning, all of them are listed, and reading it needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]*\bsrc=\"(?:https?:)?//|<link[^>]*\bhref=\"(?:https?:)?//|url\(['\"]?https?:|@import"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    config = ["--config-file", ".ci/mkdocs.yml", "--site-dir", str(folder)]
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", *config]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_page_is_built_and_nothing_is_fetched(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    assert pages <= {page.relative_to(site) for page in site.rglob("*.html")}
    asking = [
        file.relative_to(site).as_posix()
        for file in site.rglob("*")
        if file.suffix in (".html", ".css") and FETCHED.search(file.read_text())
    ]
    assert asking == []


def test_diagrams_can_be_read_as_text(site: Path) -> None:
    page = (site / "architecture.html").read_text()
    assert page.count("language-mermaid") == (DOCS / "architecture.md").read_text().count("```mermaid") > 0


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "index.md").read_text()))
    assert listed == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
