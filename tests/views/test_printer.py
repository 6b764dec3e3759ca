from __future__ import annotations

import errno
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.views.printer import Printer, visible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printer(**options: object) -> tuple[Printer, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Printer(stdout=out, stderr=err, **options), out, err  # type: ignore[arg-type]


def table() -> Table:
    wide = Table("a", "b")
    wide.add_row(Text("first"), Text("second " * 20))
    return wide


def test_data_goes_to_stdout_and_messages_to_stderr() -> None:
    shown, out, err = printer()
    shown.show({"a": 1}, Text("data"))
    shown.note("note")
    shown.warn("careful")
    assert out.getvalue() == "data\n"
    assert err.getvalue() == "note\nwarning: careful\n"


def test_json_is_the_document_and_nothing_else() -> None:
    shown, out, err = printer(json=True)
    with shown.step("working"):
        shown.show({"a": "ä" * 300, "markup": "[red]x[/red]"}, table())
    assert json.loads(out.getvalue()) == {"a": "ä" * 300, "markup": "[red]x[/red]"}
    assert "working" in err.getvalue()


def test_no_colour_where_nobody_sees_it() -> None:
    shown, out, err = printer()
    shown.show({}, Text("data", style="red"))
    shown.error(InputError("wrong"))
    assert "\x1b" not in out.getvalue() + err.getvalue()


def test_colour_on_a_terminal_unless_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for color, no_color, expected in ((True, "", True), (False, "", False), (True, "1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        terminal = Terminal()
        Printer(color=color, stdout=terminal).show({}, Text("data", style="red"))
        assert ("\x1b[31m" in terminal.getvalue()) is expected


def test_a_narrow_terminal_loses_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    shown, out, _ = printer()
    shown.show({}, table())
    lines = out.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 30
    assert out.getvalue().count("second") == 20


def test_raw_text_is_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    shown, out, _ = printer()
    shown.raw("x" * 100 + " [b]")
    assert out.getvalue() == "x" * 100 + " [b]\n"


def test_a_sentence_is_one_line_for_whoever_reads_it_from_a_pipe() -> None:
    shown, out, _ = printer()
    shown.show({}, Text("word " * 40))
    assert out.getvalue().count("\n") == 1


def test_details_need_v() -> None:
    for verbosity, expected in ((0, ""), (1, "detail\n")):
        shown, _, err = printer(verbosity=verbosity)
        shown.detail("detail")
        assert err.getvalue() == expected


def test_a_step_is_told_once_it_is_done() -> None:
    shown, _, err = printer()
    with shown.step("working"):
        assert err.getvalue() == ""
    assert err.getvalue().startswith("  done  working (")


def test_a_step_that_failed_is_not_done() -> None:
    shown, _, err = printer()
    with pytest.raises(InputError), shown.step("working"):
        raise InputError("no")
    assert err.getvalue() == ""


def test_progress_on_a_terminal_leaves_nothing_behind() -> None:
    terminal = Terminal()
    shown = Printer(stderr=terminal)
    with shown.progress("one") as tell:
        tell("two")
    assert terminal.getvalue().endswith(("\x1b[?25h", "\x1b[2K", "\x1b[1A\x1b[2K"))


def test_words_from_elsewhere_cannot_steer_the_terminal() -> None:
    shown, _, err = printer()
    shown.note("a\x1b]0;title\x07b\r")
    assert err.getvalue() == "a\\x1b]0;title\\x07b\\r\n"


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_output_is_a_fault_of_the_environment() -> None:
    for json_mode in (False, True):
        shown = Printer(stdout=Full(), json=json_mode)
        with pytest.raises(EnvironmentFault, match="standard output cannot be written: No space left on device"):
            shown.show({}, Text("data"))


def test_a_reader_of_messages_that_went_away_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    out = io.StringIO()
    shown = Printer(stderr=Gone(), stdout=out)
    shown.note("note")
    shown.warn("careful")
    shown.raw("data")
    assert out.getvalue() == "data\n"


def test_messages_that_nobody_can_be_given_are_dropped() -> None:
    shown = Printer(stderr=Full(), stdout=io.StringIO(), verbosity=2)
    shown.note("note")
    shown.warn("careful")
    shown.error(InputError("wrong", hint="right"))
    shown.bug(ValueError())


def test_an_error_after_the_document_is_no_second_one() -> None:
    shown, out, err = printer(json=True)
    shown.show({"a": 1})
    shown.error(InputError("wrong"))
    shown.usage("odd", "even")
    assert json.loads(out.getvalue()) == {"a": 1}
    assert err.getvalue() == "error: wrong\nerror: odd\nhint: even\n"


def test_an_error_that_cannot_be_printed_either_is_still_told() -> None:
    err = io.StringIO()
    Printer(json=True, stdout=Full(), stderr=err).error(InputError("wrong"))
    assert err.getvalue() == "error: wrong\n"


@given(st.text())
def test_visible_text_is_printable(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in visible(text))
    assert visible(visible(text)) == visible(text)
