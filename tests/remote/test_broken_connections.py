"""Connections that break, and servers that are odd, for every way to reach them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faults.proxy import Fault, FaultProxy
from kakeya_ops.errors import ConnectFailed, ConnectionLost
from kakeya_ops.remote.file_runner import FileRunner
from kakeya_ops.remote.runner import Result
from sshd import HOST, SshServer, wait_until

MEBIBYTE = 2**20
KINDS = ("paramiko", "paramiko alone", "openssh")


@pytest.mark.parametrize("kind", KINDS)
class TestBrokenConnection:
    @pytest.fixture
    def proxy(self, server: SshServer) -> Iterator[FaultProxy]:
        with FaultProxy((HOST, server.port)) as started:
            yield started

    @pytest.fixture
    def proxied(
        self,
        kind: str,
        server: SshServer,
        proxy: FaultProxy,
        tmp_path: Path,
        open_runner: Callable[[str, Path], FileRunner],
    ) -> FileRunner:
        known = tmp_path / "known_hosts"
        known.write_text(server.known_line(port=proxy.port))
        name = f"ssh_config_{kind.replace(' ', '_')}"
        config = server.write_config("mac", name, Port=proxy.port, UserKnownHostsFile=known)
        return open_runner(kind, config)

    def test_in_the_middle_of_a_command(self, proxied: FileRunner, proxy: FaultProxy, tmp_path: Path) -> None:
        begun = tmp_path / "begun"
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(proxied.run, ["sh", "-c", f"echo > {begun}; exec sleep 3"])
            wait_until(begun.exists, "the command did not begin")
            proxy.sever()
            with pytest.raises(ConnectionLost, match="while sh was running"):
                running.result(10)
        assert proxied.run(["echo", "again"], check=True).text == "again\n"

    def test_between_two_commands(self, proxied: FileRunner, proxy: FaultProxy) -> None:
        proxied.write("~/between", b"1", 0o600)
        connections = proxy.accepted
        proxy.sever()
        for _ in range(2):
            try:
                assert proxied.read("~/between") == b"1"
                break
            except ConnectionLost:
                continue
        else:
            pytest.fail("it did not connect again")
        assert proxy.accepted > connections

    def test_in_the_middle_of_an_upload(
        self, proxied: FileRunner, proxy: FaultProxy, source: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "target"
        target.write_bytes(b"old")
        proxy.set(up=Fault(cut_after_bytes=4 * MEBIBYTE))
        with pytest.raises(ConnectionLost):
            proxied.upload(source, str(target), progress=lambda _: None)
        assert target.read_bytes() == b"old"
        proxy.heal()
        before = proxy.passed("up")
        steps: list[int] = []
        proxied.upload(source, str(target), progress=steps.append)
        assert steps[0] > 0
        assert proxy.passed("up") - before < source.stat().st_size - steps[0] + MEBIBYTE
        assert target.read_bytes() == source.read_bytes()

    def test_nobody_there(self, proxied: FileRunner, proxy: FaultProxy) -> None:
        proxy.close()
        with pytest.raises(ConnectFailed, match="refused"):
            proxied.run(["true"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_allows_one_session_at_a_time(
    kind: str, make_server: Callable[..., SshServer], open_runner: Callable[[str, Path], FileRunner], tmp_path: Path
) -> None:
    own = make_server(settings={"MaxSessions": 1})
    runner = open_runner(kind, own.write_config())
    runner.write("~/file", b"1", 0o600)
    assert runner.run(["cat", "file"]) == Result(0, b"1", b"")
    assert runner.read("~/file") == b"1"
    (tmp_path / "source").write_bytes(b"big")
    runner.upload(tmp_path / "source", "~/sent", progress=lambda _: None)
    assert (own.home / "sent").read_bytes() == b"big"


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_stops_and_starts_again(
    kind: str, make_server: Callable[..., SshServer], open_runner: Callable[[str, Path], FileRunner]
) -> None:
    own = make_server()
    runner = open_runner(kind, own.write_config())
    runner.run(["true"], check=True)
    own.stop()
    with pytest.raises((ConnectionLost, ConnectFailed)):
        runner.run(["true"])
    with pytest.raises(ConnectFailed):
        runner.run(["true"])
    own.start()
    assert runner.run(["echo", "back"]).text == "back\n"
