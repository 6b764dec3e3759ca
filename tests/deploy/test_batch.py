"""Commands that are sent together are as those that are sent apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.deploy.batch import Call, run_all
from kakeya_ops.errors import CommandFailed, CommandTimeout
from kakeya_ops.remote.local_runner import LocalRunner


def test_each_has_its_own_outcome_whatever_came_before(runner: LocalRunner) -> None:
    calls = [Call(("sh", "-c", "exit 3")), Call(("printf", "a\\nb")), Call(("no-such-program",)), Call(("true",))]
    found = run_all(runner, calls, 10)
    assert [(one.status, one.stdout) for one in found] == [(3, b""), (0, b"a\nb"), (127, b""), (0, b"")]


@pytest.mark.parametrize("words", ["$(touch x)", "`y`", "a 'b' \"c\"", "; exit 9", "\n", "*", "<<E"])
def test_words_are_words(runner: LocalRunner, words: str) -> None:
    (found,) = run_all(runner, [Call(("printf", "%s", words))], 10)
    assert found.stdout == words.encode()


def test_input_is_read_by_its_own_command_and_by_no_shell(runner: LocalRunner) -> None:
    text = b"$(touch x) `y` \\ 'z' \"q\""
    first, empty, second = run_all(runner, [Call(("cat",), text), Call(("cat",)), Call(("cat",), b"last")], 10)
    assert (first.stdout, empty.stdout, second.stdout) == (text + b"\n", b"", b"last\n")


def test_output_that_looks_like_a_mark_is_output(runner: LocalRunner) -> None:
    (found,) = run_all(runner, [Call(("printf", "\\nbegin 0\\n\\nend 0 7\\n"))], 10)
    assert (found.status, found.stdout) == (0, b"\nbegin 0\n\nend 0 7\n")


def test_what_takes_too_long_is_named(runner: LocalRunner) -> None:
    with pytest.raises(CommandTimeout, match="true; sleep 60"):
        run_all(runner, [Call(("true",)), Call(("sleep", "60"))], 0.3)


def test_what_does_not_come_to_its_end_is_an_error(runner: LocalRunner) -> None:
    with pytest.raises(CommandFailed):
        run_all(runner, [Call(("true",)), Call(("sh", "-c", "kill -9 $PPID"))], 10)


def test_what_follows_a_call_that_hangs_does_not_happen_later(
    runner: LocalRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the clock of the host says after the first command that half of the time is over."""
    calls, late = tmp_path / "calls", tmp_path / "late"
    clock = tmp_path / "date"
    clock.write_text(f'#!/bin/sh\necho >> {calls}\n[ "$(wc -l < {calls})" -lt 3 ] && echo 100 || echo 115\n')
    clock.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(CommandFailed, match="did not come to its end"):
        run_all(runner, [Call(("true",)), Call(("touch", str(late)))], 30.0)
    assert not late.exists()
    calls.unlink()
    first, second = run_all(runner, [Call(("true",)), Call(("printf", "a look"), looks=True)], 30.0)
    assert (first.status, second.stdout) == (0, b"a look")
    assert len(run_all(runner, [Call(("true",))], 300.0)) == 1
