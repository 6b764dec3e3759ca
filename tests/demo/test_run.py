from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

from kakeya_ops.demo.run import SMOLLM2, choose_model
from kakeya_ops.errors import EnvironmentFault, ExitCode, ModelDirectoryError

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "kakeya_ops.cli.main")
PATIENCE_SECONDS = 60.0


class Demo:
    """A running ``kakeya demo``, its temporary files below `directory`, its messages in a file."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._messages = directory / "messages.txt"
        with self._messages.open("wb") as messages:
            self.process = subprocess.Popen(
                [*COMMAND, "demo", *options],
                cwd=ROOT,
                env={"PATH": "/usr/bin:/bin", "TMPDIR": str(directory), "HOME": str(directory)},
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )

    @property
    def messages(self) -> str:
        return self._messages.read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; fail when the demo ends first or takes too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self.ended_within(0.02) is False, self.messages
            assert time.monotonic() < deadline, self.messages

    def ended_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def read_document(self) -> dict[str, Any]:
        """The JSON document that it prints before it goes on."""
        assert self.process.stdout
        text = ""
        for line in self.process.stdout:
            text += line
            if line.rstrip() == "}":
                break
        found: dict[str, Any] = json.loads(text)
        return found

    def end(self) -> tuple[int, str]:
        """Its exit code and the rest of what it printed."""
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out


@contextmanager
def demo(directory: Path, *options: str) -> Iterator[Demo]:
    """A demo that leaves nothing behind, whatever the test does to it."""
    running = Demo(directory, *options)
    children: list[psutil.Process] = []
    try:
        yield running
        if not running.ended_within(0):
            children = running.children()
    finally:
        if not running.ended_within(0):
            running.process.send_signal(signal.SIGTERM)
        running.process.communicate(timeout=PATIENCE_SECONDS)
    assert [child for child in children if child.is_running()] == []
    assert list(directory.glob("kakeya-demo-*")) == []


@pytest.mark.slow
def test_the_demo_proves_that_the_worker_computed(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        code, out = running.end()
    assert code == ExitCode.OK, running.messages + out
    assert "PASSED: worker computed the prefix" in out
    assert "failed" not in out
    assert "unknown" not in out
    assert "prefer_remote" in running.messages
    assert [path.name for path in tmp_path.iterdir()] == ["messages.txt"]


@pytest.mark.slow
def test_a_kept_fleet_is_proved_until_its_worker_is_killed(tmp_path: Path) -> None:
    with demo(tmp_path, "--keep", "--json") as running:
        shown = running.read_document()
        assert shown["report"]["passed"] is True, shown
        assert shown["receipt"]["decision"]["worker"] == "worker"
        assert probe(shown["inventory"]).returncode == ExitCode.OK
        worker = psutil.Process(shown["pids"]["worker"])
        worker.kill()
        running.wait_for(lambda: "was killed by SIGKILL" in running.messages)
        refused = probe(shown["inventory"])
        assert refused.returncode == ExitCode.NO, refused.stderr
        assert "worker" in json.loads(refused.stdout)["checks"][0]["detail"]
        running.process.send_signal(signal.SIGINT)
        assert running.end() == (ExitCode.OK, "")


def probe(inventory: str) -> subprocess.CompletedProcess[str]:
    words = [*COMMAND, "--inventory", inventory, "verify", "remote-prefill", "--json"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_it_starts_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path) as running:
        running.wait_for(lambda: len(running.children()) == 2)
        children = running.children()
        running.process.send_signal(number)
        assert running.end() == (ExitCode.INTERRUPTED, "")
        assert [child for child in children if child.is_running()] == []
    assert "Traceback" not in running.messages


def test_a_child_that_is_killed_is_named(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        running.wait_for(lambda: len(running.children()) == 2)
        running.children()[-1].kill()
        assert running.end()[0] == ExitCode.FAILED
    assert "was killed by SIGKILL" in running.messages
    assert "error: " in running.messages


def test_a_demo_that_is_killed_takes_its_children_with_it(tmp_path: Path) -> None:
    running = Demo(tmp_path)
    running.wait_for(lambda: len(running.children()) == 2)
    children = running.children()
    running.process.kill()
    running.process.communicate(timeout=PATIENCE_SECONDS)
    assert psutil.wait_procs(children, PATIENCE_SECONDS)[1] == []


def test_a_port_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with demo(tmp_path, "--port", port) as running:
            assert running.end() == (ExitCode.FAILED, "")
    assert f"error: port {port} of 127.0.0.1 cannot be used" in running.messages
    assert "hint: " in running.messages


def test_a_model_that_is_none_is_told(tmp_path: Path) -> None:
    with demo(tmp_path, "--model", str(tmp_path / "absent")) as running:
        assert running.end() == (ExitCode.INPUT, "")
    assert str(tmp_path / "absent") in running.messages


class Silent:
    """A view that shows nothing."""

    def step(self, text: str) -> Any:
        return nullcontext()

    def progress(self, text: str) -> Any:
        return nullcontext(lambda _: None)

    def note(self, text: str) -> None:
        pass

    def outcome(self, outcome: Any) -> None:
        pass


def test_a_tiny_model_is_made_where_none_is_named(tmp_path: Path) -> None:
    assert choose_model(None, tmp_path, Silent()) == tmp_path / "tiny-llama"
    assert choose_model(str(tmp_path / "tiny-llama"), tmp_path, Silent()) == tmp_path / "tiny-llama"
    with pytest.raises(ModelDirectoryError):
        choose_model(str(tmp_path), tmp_path, Silent())


def test_no_place_for_the_tiny_model_is_told() -> None:
    with pytest.raises(EnvironmentFault, match="cannot write a model to /proc/none/tiny-llama") as caught:
        choose_model(None, Path("/proc/none"), Silent())
    assert "TMPDIR" in str(caught.value.hint)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_disk_without_room_for_the_tiny_model_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / "tiny-llama").mkdir()
    (tmp_path / "tiny-llama" / name).symlink_to("/dev/full")
    with pytest.raises(EnvironmentFault, match="tiny-llama: No space left on device"):
        choose_model(None, tmp_path, Silent())


@pytest.mark.real_model
def test_the_real_model_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert (choose_model(SMOLLM2, tmp_path, Silent()) / "config.json").is_file()
