"""Every block of code in the documents is what it says that it is: commands, YAML, JSON, Python."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_lines import fault_in_prose, fault_of, read_line
from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import Inventory, load_inventory, parse_inventory
from kakeya_ops.runbook import list_pages, render_page

ROOT = Path(__file__).parents[1]
FLEET = ROOT / "runbooks/two-macs.yaml"
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(?:\.venv/bin/)?(kakeya [^`]+)`")
NAMED = re.compile(r"\bkakeya (?:--json )?[a-z-]+(?: [^;,\n]*)?")


def documents() -> Iterator[tuple[str, str]]:
    """Each page and its text; runbooks that are templates as a person gets them."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "runbooks").glob("*.md")]:
        yield page.relative_to(ROOT).as_posix(), page.read_text()
    fleet = load_inventory(FLEET)
    for name in (page.name for page in list_pages()):
        yield f"kakeya runbook {name}", render_page(name, fleet)


def console_faults(text: str) -> Iterator[str]:
    """Of a terminal: the lines after a prompt, with those that go on below."""
    for line in re.findall(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)", text, re.MULTILINE):
        yield from shell_faults(line.replace("\\\n", " "))


def shell_faults(text: str) -> Iterator[str]:
    """Of what is to be pasted: every line."""
    for line in text.splitlines():
        try:
            commands = list(read_line(line))
        except ValueError as error:
            yield f"{line}: {error}"
            continue
        yield from (fault for command in commands if (fault := fault_of(command)))


def yaml_faults(text: str) -> Iterator[str]:
    """Of YAML: its form, and that it is an inventory or a part of one, where it is about such."""
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        yield str(error)
        return
    for document in documents:
        if isinstance(document, dict) and set(document) <= set(Inventory.model_fields):
            yield from inventory_faults(document)


def inventory_faults(part: dict[str, Any]) -> Iterator[str]:
    """`part` within an inventory that has the rest."""
    whole = part if {"fleet", "hosts"} <= set(part) else merge(yaml.safe_load(FLEET.read_text()), part)
    try:
        parse_inventory(json.dumps(whole).encode(), "the block")
    except KakeyaError as error:
        yield f"{error.message}: {[str(fault) for fault in getattr(error, 'faults', ())]}"


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {key: (below[key], value) for key, value in above.items() if key in below}
    deep = {key: merge(*pair) for key, pair in both.items() if all(isinstance(one, dict) for one in pair)}
    return below | above | deep


def json_faults(text: str) -> Iterator[str]:
    """Of JSON: one document, or one a line."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            try:
                json.loads(line)
            except ValueError as error:
                yield f"{line[:80]}: {error}"


def python_faults(text: str) -> Iterator[str]:
    """Of Python: its form."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        yield str(error)


def diagram_faults(text: str) -> Iterator[str]:
    """Of a diagram: that it says which kind it is."""
    first = text.split()[0] if text.split() else ""
    if first not in ("flowchart", "graph", "sequenceDiagram", "stateDiagram-v2", "classDiagram"):
        yield f"no diagram: {first}"


def nothing(text: str) -> Iterator[str]:
    """Of what is shown as it stands."""
    return iter(())


FAULTS: dict[str, Callable[[str], Iterator[str]]] = {
    "console": console_faults,
    "sh": shell_faults,
    "bash": shell_faults,
    "yaml": yaml_faults,
    "json": json_faults,
    "python": python_faults,
    "mermaid": diagram_faults,
    "text": nothing,
    "": nothing,
}
DOCUMENTS = dict(documents())


def faults_of(page: str) -> list[str]:
    """All that is wrong with the blocks of a page."""
    found = []
    for block in BLOCK.finditer(page):
        language = block["language"].strip()
        if language not in FAULTS:
            found.append(f"nobody checks {language}")
            continue
        text = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        found += FAULTS[language](text)
    return found


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_block_is_what_it_says(page: str) -> None:
    assert faults_of(DOCUMENTS[page]) == []


@pytest.mark.parametrize("page", DOCUMENTS)
def test_every_block_ends(page: str) -> None:
    assert len(re.findall(r"^ *```", DOCUMENTS[page], re.MULTILINE)) == 2 * len(BLOCK.findall(DOCUMENTS[page]))


@pytest.mark.parametrize("page", DOCUMENTS)
def test_commands_in_sentences_exist(page: str) -> None:
    prose = BLOCK.sub("", DOCUMENTS[page])
    named = (" ".join(text.split()) for text in INLINE.findall(prose))
    assert [fault for text in named if (fault := fault_in_prose(text))] == []


@pytest.mark.parametrize(
    ("language", "wrong"),
    [
        ("console", "$ kakeya deploy all --chek"),
        ("console", "$ kakeya logs"),
        ("console", "$ make tests"),
        ("console", "$ cd x && kakeya statsu | cat"),
        ("console", "$ kakeya logs 'head"),
        ("sh", "kakeya key rotat"),
        ("yaml", "a: [1"),
        ("yaml", "cache: {sinc: 4}"),
        ("yaml", "hosts: {allens: {role: cook}}"),
        ("json", '{"a": }'),
        ("python", "def f(:"),
        ("mermaid", "boxes and lines"),
        ("cobol", "MOVE A TO B"),
    ],
)
def test_a_wrong_block_is_found(language: str, wrong: str) -> None:
    assert faults_of(f"```{language}\n{wrong}\n```\n")


@pytest.mark.parametrize(
    ("language", "right"),
    [
        (
            "console",
            "$ kakeya deploy all --check  # and nothing else\nall is well\n$ kakeya --json status | jq . > /tmp/x",
        ),
        ("console", "$ make demo\n$ cd x && kakeya logs \\\n    head -n 5"),
        ("yaml", "cache: {sink: 8}"),
        ("yaml", "hosts: {allens: {pool_gb: 2}}"),
        ("yaml", "scrape_configs: []"),
        ("json", '{"a": 1}\n{"a": 2}'),
        ("text", "anything"),
    ],
)
def test_a_right_block_is_none(language: str, right: str) -> None:
    assert faults_of(f"```{language}\n{right}\n```\n") == []


def strings(tree: ast.AST) -> Iterator[str]:
    """Every text in a program, with a word for each value that is put into it."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


SOURCES = sorted((ROOT / "kakeya_ops").rglob("*.py"))


def test_commands_that_messages_name_have_the_options_that_they_are_named_with() -> None:
    told = [(source, text) for source in SOURCES for text in strings(ast.parse(source.read_text()))]
    named = [(source.name, one) for source, text in told for one in NAMED.findall(text)]
    assert ("doctor.py", "kakeya --json doctor workers") in named
    faults = [f"{name}: {fault}" for name, one in named if (fault := fault_in_prose(one)) and "no option" in fault]
    assert faults == []
