from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kakeya_ops.errors import InputError
from kakeya_ops.remote.quoting import check_argv, quote_command

SHELLS = [shell for shell in ("sh", "dash", "bash", "zsh", "fish") if shutil.which(shell)]
WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12), max_size=20)
SHARP = st.lists(st.text("'\"\\$`!*?~=;&|<>(){}[]#%^ \n\tab-", max_size=8), max_size=20)


def as_read_by(shell: str, words: list[str]) -> list[str]:
    command = quote_command(["/usr/bin/printf", "%s\\0", "first", *words])
    done = subprocess.run([shell, "-c", command], capture_output=True, check=True)
    return done.stdout.decode().split("\0")[1:-1]


@pytest.mark.parametrize("shell", SHELLS)
class TestEveryShell:
    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(words=WORDS | SHARP)
    def test_reads_the_words_as_they_were(self, shell: str, words: list[str]) -> None:
        assert as_read_by(shell, words) == words

    def test_reads_what_shlex_would_leave_bare(self, shell: str) -> None:
        words = ["=ls", "A=b", "%1", "a\\", "\\'", "a\\'b'", "'", "\\\\"]
        assert as_read_by(shell, words) == words

    def test_takes_a_first_word_with_an_equals_sign_for_a_program(self, shell: str) -> None:
        done = subprocess.run([shell, "-c", quote_command(["A=b", "true"])], capture_output=True)
        assert done.returncode == 127


def test_plain_words_stay_readable() -> None:
    assert quote_command(["launchctl", "print", "gui/501", "-v", "a@b:2,+x"]) == "launchctl print gui/501 -v a@b:2,+x"


@pytest.mark.parametrize("argv", [[], [""], ["a", "\0"], "ls -l"])
def test_what_nobody_can_run(argv: list[str]) -> None:
    with pytest.raises(InputError):
        quote_command(argv)
    with pytest.raises(InputError):
        check_argv(argv)
