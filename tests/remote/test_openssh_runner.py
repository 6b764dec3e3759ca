"""What is the system's ssh's own; the rest is in `test_runner` and `test_connect`."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.openssh_runner import OpenSshRunner, _private_folder
from sshd import SshServer, wait_until

OpenRunner = Callable[[str, Path], FileRunner]


def masters() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.name() == "ssh"]


def test_one_connection_for_everything(make_server: Callable[..., SshServer], open_runner: OpenRunner) -> None:
    own = make_server()
    runner = open_runner("openssh", own.write_config())
    for number in range(3):
        runner.run(["true"], check=True)
        runner.write(f"~/file{number}", b"", 0o600)
    assert own.log.count("Accepted publickey") == 1


def test_nothing_is_left_when_it_is_closed(server: SshServer, open_runner: OpenRunner) -> None:
    before = set(masters())
    runner = open_runner("openssh", server.write_config())
    assert isinstance(runner, OpenSshRunner)
    runner.open()
    [master] = set(masters()) - before
    folder = runner._folder
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    runner.close()
    assert not folder.exists()
    wait_until(lambda: not master.is_running(), "ssh was left")
    runner.close()


def test_the_configuration_cannot_make_it_do_more(server: SshServer, open_runner: OpenRunner, tmp_path: Path) -> None:
    settings = {
        "RemoteCommand": "touch pwned",
        "RequestTTY": "force",
        "PermitLocalCommand": "yes",
        "LocalCommand": f"touch {tmp_path}/pwned",
        "LocalForward": "1 localhost:1",
        "ControlPath": f"{tmp_path}/control",
        "ControlMaster": "auto",
        "LogLevel": "QUIET",
        "StrictHostKeyChecking": "no",
    }
    runner = open_runner("openssh", server.write_config("mac", "greedy", **settings))
    assert runner.run(["echo", "only this"], check=True).stdout == b"only this\n"
    assert runner.run(["sh", "-c", "test -t 0"]).status == 1
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "control").exists()


def test_the_folder_of_the_socket_has_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = _private_folder()
    assert folder.parent == Path("/tmp")
    os.rmdir(folder)
