"""A log that launchd holds open stays short, whichever way it was opened."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kakeya_ops.serving.log_limit import BoundedStderr

WRITER = """
import logging, sys
from kakeya_ops.serving.log_limit import BoundedStderr
logging.basicConfig(handlers=[BoundedStderr(20000)])
for number in range(3000):
    logging.warning("line %d", number)
"""


@pytest.mark.parametrize("flags", [os.O_APPEND, 0])
def test_a_file_is_begun_anew_before_it_grows_too_long(tmp_path: Path, flags: int) -> None:
    log = tmp_path / "service.log"
    log.write_bytes(b"of an earlier life\n" * 2000)
    descriptor = os.open(log, os.O_WRONLY | flags)
    os.lseek(descriptor, 0, os.SEEK_END)
    subprocess.run([sys.executable, "-c", WRITER], stderr=descriptor, check=True, timeout=60)
    os.close(descriptor)
    text = log.read_bytes()
    assert len(text) < 40000
    assert b"\0" not in text
    assert text.splitlines()[0].endswith(b":the log was longer than 20000 bytes and was begun anew")
    assert text.endswith(b"line 2999\n")


def test_what_is_no_file_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = BoundedStderr(1)
    for _ in range(3):
        handler.emit(logging.makeLogRecord({"msg": "hello"}))
    assert stream.getvalue() == "hello\n" * 3
