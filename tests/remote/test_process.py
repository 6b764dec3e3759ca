from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kakeya_ops.remote import process
from kakeya_ops.remote.process import run_process
from sshd import wait_until


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Whoever adopted it may not have taken note of its end yet.
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_children_end_with_what_took_too_long(tmp_path: Path) -> None:
    started = time.monotonic()
    script = f"sleep 30 & echo $! > {tmp_path}/pid; wait"
    done = run_process(["sh", "-c", script], timeout_seconds=0.5)
    assert done.ending == "timeout"
    assert time.monotonic() - started < 10
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: gone(pid), "a child was left")


def test_children_end_even_when_their_parent_left_them(tmp_path: Path) -> None:
    done = run_process(["sh", "-c", f"sleep 30 & echo $! > {tmp_path}/pid"], timeout_seconds=0.5)
    assert done.ending == "timeout"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: gone(pid), "a child was left")


def test_output_up_to_the_end_of_time_is_kept() -> None:
    done = run_process(["sh", "-c", "echo early; exec sleep 30"], timeout_seconds=0.5)
    assert (done.ending, done.stdout) == ("timeout", b"early\n")


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT_LIMIT_BYTES", 100_000)
    done = run_process(["yes"], timeout_seconds=20)
    assert done.ending == "overflow"
    assert 100_000 < len(done.stdout) < 200_000


def test_a_signal_is_negative_and_the_folder_is_the_given_one(tmp_path: Path) -> None:
    assert run_process(["sh", "-c", "kill -9 $$"], timeout_seconds=10).status == -9
    assert run_process(["pwd"], timeout_seconds=10, folder=tmp_path).stdout.decode().strip() == str(tmp_path)


def test_it_can_ask_nobody() -> None:
    done = run_process(["sh", "-c", "exec 3<>/dev/tty"], timeout_seconds=10)
    assert done.status != 0


def test_what_cannot_be_started() -> None:
    with pytest.raises(FileNotFoundError):
        run_process(["/no/such/program"], timeout_seconds=1)
