"""What is paramiko's own; the rest is in `test_runner` and `test_connect`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kakeya_ops.errors import ConnectFailed
from kakeya_ops.remote import paramiko_runner
from kakeya_ops.remote.file_runner import FileRunner
from sshd import SshServer, wait_until

OpenRunner = Callable[[str, Path], FileRunner]


def test_big_files_go_by_the_systems_ssh(
    make_server: Callable[..., SshServer], open_runner: OpenRunner, tmp_path: Path
) -> None:
    own = make_server()
    runner = open_runner("paramiko", own.write_config())
    runner.run(["true"], check=True)
    assert own.log.count("Accepted publickey") == 1
    (tmp_path / "source").write_bytes(b"x")
    runner.upload(tmp_path / "source", "~/target", progress=lambda _: None)
    assert own.log.count("Accepted publickey") == 2


def test_a_server_without_room_for_another_session(
    make_server: Callable[..., SshServer], open_runner: OpenRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paramiko_runner, "_SESSION_SECONDS", 0.2)
    own = make_server(settings={"MaxSessions": 1})
    runner = open_runner("paramiko", own.write_config())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(runner.run, ["sh", "-c", f"echo > {tmp_path}/begun; exec sleep 2"])
        wait_until((tmp_path / "begun").exists, "the command did not begin")
        with pytest.raises(ConnectFailed, match="refuses another session"):
            runner.run(["true"])
        assert running.result().status == 0
