"""Every command tells what it does and shows how it is used, at any width and to any reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from kakeya_ops.cli.help import split_help
from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from kakeya_ops.status.value import State
from kakeya_ops.views.status_columns import columns

TEXT = """
    Feed one
    animal.

    It takes:

    - hay, of which there
      is enough
    - fish

    Examples:
        zoo feed hay
        zoo feed fish
    """


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(words), command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*words, name))


ROOT = get_command(app)
COMMANDS = dict(commands(ROOT))
HelpOf = Callable[[str, int], str]


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], str]:
    """What a command shows when it is asked for help on so many columns."""

    def show(words: str, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        ROOT.main([*words.split(), "--help"], prog_name="kakeya", standalone_mode=False)
        return capsys.readouterr().out

    return show


def test_a_docstring_is_paragraphs_items_and_examples() -> None:
    text, examples = split_help(TEXT)
    assert text == "Feed one animal.\n\nIt takes:\n\n- hay, of which there is enough\n- fish"
    assert examples == ("zoo feed hay", "zoo feed fish")
    assert split_help("") == ("", ())
    assert split_help("One\ntwo.") == ("One two.", ())


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_shows_examples_of_itself(words: str, help_of: HelpOf) -> None:
    examples = COMMANDS[words].examples
    assert examples
    for example in examples:
        called = [word for word in example.split() if word != "--json"]
        assert called[: 1 + len(words.split())] == ["kakeya", *words.split()]
    shown = help_of(words, 200)
    assert all(f"$ {example}" in shown for example in examples)
    assert re.findall(r"<[a-z\[\]]+>", shown) == [], "types are no words for people"


@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_its_width_and_has_no_colours_for_a_file(words: str, help_of: HelpOf) -> None:
    for width in (40, 80):
        shown = help_of(words, width)
        assert "\x1b" not in shown
        assert max(map(len, shown.splitlines())) <= width


def test_lines_are_as_long_as_the_terminal_lets_them(help_of: HelpOf) -> None:
    assert "So does --watch, by what it showed last: Ctrl-C is how it ends." in help_of("status", 200)


def test_usage_is_written_as_in_manual_pages(help_of: HelpOf) -> None:
    assert "Usage: kakeya deploy [OPTIONS] TARGET..." in help_of("deploy", 80)
    assert "Usage: kakeya memory [OPTIONS] [HOST]..." in help_of("memory", 80)
    assert "Usage: kakeya render [OPTIONS] HOST" in help_of("render", 80)


def test_what_stands_in_the_table_of_a_status_is_explained() -> None:
    told = COMMANDS["status"].help
    headings = {column.heading for column in columns(())} - {"node", "role"}
    assert [heading for heading in headings if not re.search(rf"[ ,]{heading}\b", told)] == []
    words = [*get_args(State), *("equal", "differs", "unknown", "yes", "no", "no service", "not reached", "not asked")]
    assert [word for word in words if not re.search(rf"\b{word}\b", told)] == []


@pytest.mark.parametrize(
    ("words", "sentence", "path"),
    [
        ("statsu", "there is no command 'statsu'; did you mean 'status'?", "kakeya"),
        ("zebra", "there is no command 'zebra'", "kakeya"),
        ("key rotat", "there is no command 'rotat'; did you mean 'rotate'?", "kakeya key"),
        ("status --wach", "there is no option --wach; did you mean '--watch'?", "kakeya status"),
        ("logs", "missing argument 'HOST'", "kakeya logs"),
    ],
)
def test_a_slip_is_one_sentence_and_a_hint(words: str, sentence: str, path: str) -> None:
    result = CliRunner().invoke(app, words.split(), prog_name="kakeya")
    assert (result.exit_code, result.stdout) == (ExitCode.INPUT, "")
    assert result.stderr == f"error: {sentence}\nhint: {path} --help says how it is called\n"
