"""The watched status on a real terminal, of a fleet that a file tells of."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kakeya_ops.status import FleetStatus
from kakeya_ops.views.printer import Printer
from kakeya_ops.views.status_watch import watch
from status.samples import judged, whole
from terminal import Terminal

TESTS = Path(__file__).parents[1]
WATCH = """
import sys
from pathlib import Path
from kakeya_ops.views.printer import Printer
from kakeya_ops.views.status_watch import watch
from status.samples import judged, silent, whole

def take():
    gone = Path(sys.argv[1]).exists()
    return judged(whole(allens=silent("the cable is out")) if gone else whole())

print("before")
ended = watch(Printer(), take)
print("ended by", ended.name)
"""
ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
CLEAR = b"\x1b[2J"


def command(gone: Path) -> list[str]:
    return [sys.executable, "-c", WATCH, str(gone)]


@pytest.fixture
def gone(tmp_path: Path) -> Path:
    """While it exists, the worker is out of reach."""
    return tmp_path / "gone"


@contextlib.contextmanager
def watching(gone: Path, columns: int = 80, **environment: str) -> Iterator[Terminal]:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    with Terminal(command(gone), columns, environment={"PYTHONPATH": paths, **environment}) as terminal:
        yield terminal


def test_it_changes_as_the_fleet_does_and_ctrl_c_gives_the_terminal_back(gone: Path) -> None:
    with watching(gone) as terminal:
        terminal.wait_for(lambda text: "2 of 2 hosts serve" in text)
        assert terminal.raw.count(ALTERNATE) == 1
        assert HIDE in terminal.raw
        terminal.press(b"what is this\r")
        gone.touch()
        text = terminal.wait_for(lambda text: "1 of 2 hosts serve" in text)
        assert "unreachable: the cable is out" in text
        assert "what is this" not in text
        gone.unlink()
        text = terminal.wait_for(lambda text: "2 of 2 hosts serve" in text)
        assert "the cable is out" not in text
        frames = terminal.raw.partition(ALTERNATE)[2]
        assert CLEAR not in frames.partition(b"2 of 2")[2], "the screen is cleared between frames: it flickers"
        terminal.press(b"\x03")
        assert terminal.wait_for_end() == 0
        raw = terminal.raw
        assert raw.index(BACK) > raw.index(ALTERNATE)
        assert raw.rindex(SHOW) > raw.rindex(HIDE)
        assert "ended by SIGINT" in terminal.text
        assert terminal.modes_now() == terminal.modes


WORDS = ("allens", "worker", "healthy", "equal", "not asked", "0.1.0", "1 m 40 s", "tiny", "remote_jobs 2", "evictions")


def says_all(text: str) -> bool:
    return all(word in " ".join(text.split()) for word in WORDS)


def test_it_uses_the_width_that_there_is(gone: Path) -> None:
    with watching(gone) as terminal:
        for columns, listed, below in ((80, "tokens/s", "link"), (140, "link", "uptime"), (260, "model", None)):
            terminal.resize(columns, 40)
            text = terminal.wait_for(lambda text, listed=listed: listed in heading(text) and says_all(text))
            assert below is None or below not in heading(text)
            assert max(map(len, text.splitlines())) <= columns
        terminal.resize(70, 40)
        text = terminal.wait_for(lambda text: "tokens/s" not in heading(text) and says_all(text))
        assert "tokens/s – of 1300" in " ".join(text.split())
        terminal.resize(80, 8)
        text = terminal.wait_for(lambda text: "more lines: enlarge the window" in text)
        assert text.splitlines()[0].startswith("fleet pair")
        assert len(text.splitlines()) == 8


def heading(text: str) -> str:
    """The line with the names of columns."""
    return text.splitlines()[1]


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(gone: Path) -> None:
    with watching(gone) as terminal:
        terminal.wait_for(lambda text: "2 of 2 hosts serve" in text)
        process = psutil.Process(terminal.process.pid)
        terminal.press(b"\x1a")
        terminal.wait_for(lambda text: process.status() == psutil.STATUS_STOPPED and BACK in terminal.raw)
        assert terminal.modes_now() == terminal.modes
        process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda text: terminal.raw.count(ALTERNATE) == 2)
        terminal.press(b"\x03")
        assert terminal.wait_for_end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("environment", [{}, {"TERM": "dumb", "FORCE_COLOR": "1"}])
def test_no_terminal_or_one_that_can_do_nothing_gets_blocks_of_text(
    number: signal.Signals, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(number)

    def take() -> FleetStatus:
        os.kill(os.getpid(), number)
        return judged(whole())

    out = io.StringIO()
    assert watch(Printer(stdout=out, color=False), take) is number
    assert out.getvalue().count("2 of 2 hosts serve") == 1
    assert "\x1b[?1049h" not in out.getvalue()
    assert signal.getsignal(number) == before
