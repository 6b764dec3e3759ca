from __future__ import annotations

import io

import pytest
import typer

from kakeya_ops.cli.applying import Applying, ask
from kakeya_ops.cli.context import AppContext
from kakeya_ops.errors import ExitCode, InputError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_yes_that_was_said_is_not_asked_for_again() -> None:
    ask(AppContext(), Applying(yes=True))


def test_without_a_terminal_nobody_is_asked_and_nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(InputError, match="no terminal"):
        ask(AppContext(), Applying())


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_a_no_ends_the_command(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    with pytest.raises(typer.Exit) as caught:
        ask(AppContext(), Applying())
    assert caught.value.exit_code == ExitCode.NO


def test_a_yes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    ask(AppContext(), Applying(question="Really?"))
