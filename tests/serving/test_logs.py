"""The log of a server, as it is found in a file, in a pipe and on a terminal."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import PeerTimeout
from kakeya_ops.serving.logs import clean, make_formatter

HASH = "0123456789abcdef" * 4
SCRIPT = """
import logging
from kakeya_ops.serving.logs import set_up_logs
set_up_logs({verbosity})
log = logging.getLogger("kakeya_ops.thing")
log.debug("detail")
log.info("request ended", extra={{"request_id": "r1", "job": "j1", "seconds": 0.5}})
logging.getLogger("uvicorn").info("chatter")
try:
    try:
        {{}}["the prompt's text"]
    except KeyError as error:
        raise RuntimeError("no memory\\nleft") from error
except RuntimeError:
    log.exception("compute failed")
"""


def run(verbosity: int = 0) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", SCRIPT.format(verbosity=verbosity)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_pipe_gets_a_line_of_json_for_each_event() -> None:
    ended, failed = run()
    assert [*ended][:4] == ["timestamp", "level", "event", "logger"]
    assert ended["timestamp"].endswith("Z")
    del ended["timestamp"]
    assert ended == {
        "level": "info",
        "event": "request ended",
        "logger": "kakeya_ops.thing",
        "request_id": "r1",
        "job": "j1",
        "seconds": 0.5,
    }
    assert (failed["level"], failed["event"]) == ("error", "compute failed")


def test_an_error_is_in_the_line_without_what_it_may_quote() -> None:
    _, failed = run()
    assert failed["error"] == "RuntimeError: no memory\\nleft from KeyError"
    assert failed["trace"].startswith("<string>:")
    assert "prompt" not in json.dumps(failed)


@pytest.mark.parametrize(("verbosity", "more"), [(0, set()), (1, {"detail", "chatter"})])
def test_more_is_said_when_it_is_asked_for(verbosity: int, more: set[str]) -> None:
    told = {line["event"] for line in run(verbosity)}
    assert told == {"request ended", "compute failed"} | more


def test_a_terminal_gets_it_for_people() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", SCRIPT.format(verbosity=0)], stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while more := os.read(ours, 65536):
            shown += more
    except OSError:  # the other side was closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    lines = shown.decode().splitlines()
    assert len(lines) == 2
    assert not lines[0].startswith("{")
    for word in ("request ended", "request_id", "r1", "0.5", "\x1b["):
        assert word in lines[0]


FLOOD = """
import logging
from kakeya_ops.serving.logs import set_up_logs
set_up_logs(0)
for number in range(6000):
    logging.getLogger("kakeya_ops.thing").info("line %d of many that nobody reads", number)
"""


def test_a_reader_that_takes_nothing_does_not_keep_the_process_from_its_end() -> None:
    unread, theirs = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", FLOOD], stderr=theirs)
    os.close(theirs)
    try:
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(unread)


def formatted(message: str, *, human: bool = False, error: Exception | None = None, **fields: Any) -> str:
    record = logging.LogRecord("kakeya_ops.x", logging.INFO, "x.py", 1, message, (), None)
    record.__dict__.update(fields)
    record.exc_info = (type(error), error, None) if error else None
    return make_formatter(human=human).format(record)


@pytest.mark.parametrize("human", [False, True])
def test_no_key_no_whole_hash_and_nothing_that_steers_a_terminal(human: bool) -> None:
    line = formatted(f"got {HASH}", human=human, header="Authorization: Bearer abc.def", title="\x1b]0;x\x07")
    assert HASH not in line
    assert "01234567…" in line or "01234567\\u2026" in line
    assert "abc.def" not in line
    assert "\x1b]0" not in line
    assert "\x07" not in line


SECRET = "Zm9vYmFyYmF6"


@pytest.mark.parametrize(
    "told",
    [
        f"Bearer {SECRET}",
        f"mac={SECRET}",
        f"key={SECRET}",
        f"api_key={SECRET}",
        f"api-key: {SECRET}",
        f"'X-Api-Key': '{SECRET}'",
        f'{{"apikey": "{SECRET}"}}',
        f"key file, not {HASH}",
    ],
)
@pytest.mark.parametrize("within", [str, lambda told: [told], lambda told: {"a": (told,)}, Path, str.encode])
def test_whatever_a_secret_is_in_it_is_not_told(told: str, within: Callable[[str], Any]) -> None:
    line = formatted("x", value=within(told))
    assert SECRET not in line
    assert HASH not in line


@pytest.mark.parametrize(
    "told", ["key file changed", "the key of allens", "the fleet key: no such file", "cache identity differs"]
)
def test_words_that_are_no_secret_are_kept(told: str) -> None:
    assert clean(told) == told


def test_our_own_errors_keep_their_words() -> None:
    assert json.loads(formatted("x", error=PeerTimeout("allens", "silent")))["error"] == "PeerTimeout: allens: silent"
    assert json.loads(formatted("x", error=ValueError("the prompt")))["error"] == "ValueError"


@given(message=st.text(), value=st.text() | st.integers() | st.none() | st.lists(st.text()))
def test_every_event_is_one_line_of_ascii_json(message: str, value: Any) -> None:
    line = formatted(message.replace("%", "%%"), anything=value)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["level"] == "info"


@given(st.text())
def test_cleaning_is_bounded_and_printable(text: str) -> None:
    cleaned = clean(text * 50)
    assert len(cleaned) <= 501
    assert cleaned.isprintable()


def test_a_request_id_is_kept_whole() -> None:
    request_id = "0123456789abcdef" * 2
    assert clean(request_id) == request_id
