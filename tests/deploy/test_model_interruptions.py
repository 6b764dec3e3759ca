"""Copies of models that something comes in between: lost connections, full disks, a person who gives up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.bare_host import Notes, make_context, make_inventory
from deploy.model_copies import MEBIBYTE, observed, open_ssh, read, sync, visible, write_model
from faults.proxy import Fault, FaultProxy
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.errors import Interrupted
from kakeya_ops.errors import ConnectionLost, RemoteError, TransferFailed
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.runner import Runner
from sshd import HOST, Knobs, SshServer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "here/tiny")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with SshServer(tmp_path_factory.mktemp("sshd")) as started:
        yield started


class TestInterruptions:
    """Over SSH, by a proxy that breaks connections."""

    @pytest.fixture
    def big(self, tmp_path: Path) -> Path:
        return write_model(tmp_path / "big", values=4 * MEBIBYTE)

    @pytest.fixture
    def home(self, server: SshServer, tmp_path: Path) -> Path:
        home = server.home / tmp_path.name
        home.mkdir()
        return home

    def open(self, runner: Runner, home: Path, notes: Notes | None = None) -> HostContext:
        return make_context(runner, home, make_inventory(f"{home}/model", install_root=f"{home}/root"), notes)

    @pytest.mark.parametrize("kind", ["paramiko", "openssh"])
    def test_a_broken_connection_is_made_again_and_only_the_rest_is_sent(
        self, server: SshServer, home: Path, big: Path, kind: str
    ) -> None:
        with FaultProxy((HOST, server.port)) as proxy:
            proxy.set(up=Fault(cut_after_bytes=6 * MEBIBYTE))
            runner, notes = open_ssh(server, proxy.port, kind), Notes()
            notes.on_arrival = lambda done: proxy.heal() if done > 2 * MEBIBYTE else None
            context = self.open(runner, home, notes)
            sync(context, read(big))
            assert visible(home / "model") == visible(big)
            total = sum(len(data) for data in visible(big).values())
            assert proxy.passed("up") < 1.5 * total
            assert any("the connection broke" in line for line in notes.lines), notes.lines
            runner.close()

    def test_what_arrived_before_the_end_of_a_deploy_is_not_sent_by_the_next(
        self, server: SshServer, home: Path, big: Path
    ) -> None:
        copy, notes = read(big), Notes()
        runner = open_ssh(server)
        context = self.open(runner, home, notes)
        notes.on_arrival = lambda done: context.cancelled.set() if done > 5 * MEBIBYTE else None
        with pytest.raises(Interrupted):
            sync(context, copy)
        assert visible(home / "model") == {}, "nothing that is not whole is in sight"
        assert not (home / "root/model.json").exists()
        again = Notes()
        context = self.open(runner, home, again)
        (step,) = copy.steps(context.host, context.places, observed(context))
        step.apply(context)
        assert again.arrived[0] >= 4 * MEBIBYTE
        assert visible(home / "model") == visible(big)
        runner.close()

    def test_a_connection_that_never_lasts_is_an_error_and_nothing_is_taken_for_complete(
        self, server: SshServer, home: Path, big: Path
    ) -> None:
        copy, notes = read(big), Notes()
        with FaultProxy((HOST, server.port)) as proxy:
            runner = open_ssh(server, proxy.port)
            notes.on_arrival = lambda done: (proxy.set("refuse"), proxy.sever())[0]
            context = self.open(runner, home, notes)
            with pytest.raises(RemoteError):
                sync(context, copy)
            runner.close()
        assert visible(home / "model") == {}
        assert len([line for line in notes.lines if "going on" in line]) == 2

    def test_a_partial_file_that_the_host_has_spoiled_is_sent_again(
        self, server: SshServer, home: Path, big: Path
    ) -> None:
        copy, notes = read(big), Notes()
        runner = open_ssh(server)
        context = self.open(runner, home, notes)
        notes.on_arrival = lambda done: context.cancelled.set() if done > 2 * MEBIBYTE else None
        with pytest.raises(Interrupted):
            sync(context, copy)
        (partial,) = (home / "model/.incoming").glob(".*.partial")
        with partial.open("r+b") as file:
            file.write(bytes(64))
        context = self.open(runner, home, Notes())
        sync(context, copy)
        assert visible(home / "model") == visible(big)
        runner.close()

    def test_a_full_disk_is_told_and_keeps_what_arrived_out_of_sight(self, tmp_path: Path, big: Path) -> None:
        knobs = Knobs(file_limit_bytes=2 * MEBIBYTE)
        with SshServer(tmp_path / "full", knobs) as server:
            runner = open_ssh(server)
            context = make_context(runner, server.home)
            with pytest.raises(TransferFailed) as caught:
                sync(context, read(big))
            assert "df -h" in (caught.value.hint or "")
            there = Path(context.places.model)
            assert visible(there) == {}
            (partial,) = (there / ".incoming").glob(".*.partial")
            assert partial.stat().st_size <= 2 * MEBIBYTE
            assert not (Path(context.places.root) / "model.json").exists()
            runner.close()

    @pytest.mark.system("root")
    def test_a_really_full_disk(self, server: SshServer, home: Path, big: Path) -> None:
        disk = home / "model"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], capture_output=True)
        if mounted.returncode:
            pytest.skip("this container cannot mount a tmpfs")
        runner = open_ssh(server)
        try:
            with pytest.raises(TransferFailed):
                sync(self.open(runner, home), read(big))
            assert visible(disk) == {}
        finally:
            runner.close()
            subprocess.run(["umount", disk], check=True)


def test_a_lost_connection_is_not_taken_for_the_hosts_fault(tmp_path: Path, source: Path) -> None:
    """A runner that always loses its connection: the error is the connection's, after three tries."""

    class Losing(LocalRunner):
        tries = 0

        def upload(self, source: Path, target: str, *, progress: Any) -> None:
            self.tries += 1
            raise ConnectionLost(self.name, "it was sending")

    runner = Losing("allens")
    inventory = make_inventory(f"{tmp_path}/model", install_root=f"{tmp_path}/root")
    context = make_context(runner, tmp_path, inventory)
    context.timing = replace(context.timing, retry=0.0)
    with pytest.raises(ConnectionLost):
        sync(context, read(source))
    assert runner.tries == 3
