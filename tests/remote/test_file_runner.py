from __future__ import annotations

import errno

import pytest

from kakeya_ops.remote.file_runner import _hint, _reason, printable_tail


def test_what_a_command_said_cannot_speak_to_the_terminal() -> None:
    assert printable_tail(b"a\x1b]0;title\x07b\nc\xff") == "a\N{REPLACEMENT CHARACTER}]0;title�b\nc�"
    assert printable_tail(b"x" * 5000) == "x" * 2000


@pytest.mark.parametrize(
    ("error", "reason", "hint"),
    [
        (OSError("Failure"), "the host refused it without a reason", "is there room? df -h '/a b'"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device", "is there room? df -h '/a b'"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "No such file", "make the folder first: mkdir -p '/a b'"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied", None),
        (OSError(), "OSError", None),
    ],
)
def test_reasons(error: OSError, reason: str, hint: str | None) -> None:
    assert _reason(error) == reason
    assert _hint(error, "/a b/file") == hint
